"""Memoize slow functions, so that equal calls in a test module are computed once."""

import pkgutil

import jax


def memoized(function, key=lambda *arguments, **options: None, found=None):
    """Return a memoized function. `key` maps the arguments to a key, and `found` stores the results."""
    found = {} if found is None else found

    def memoizing(*arguments, **options):
        name = function, key(*arguments, **options)
        if name not in found:
            found[name] = function(*arguments, **options)
        return found[name]

    return memoizing


def programs(patch):
    """Memoize compiled programs and the objects that commands build. Return the dictionary of results.

    Two tasks or algorithms share a result if their parts are identical objects.
    """
    from memes.runner import loop  # import this only after shapes.check() in conftest.py

    found, kept = {}, []

    def identity(part):
        if part is None or isinstance(part, (str, int, dict)):
            return repr(part)
        kept.append(part)  # keep the part alive, so that no other object gets its id
        return id(part)

    def same(first, *others, **options):
        parts = first if isinstance(first, tuple) else [first]
        return *map(identity, parts), *others, *sorted(options.items())

    def same_run(algorithm, placement, seeds, generations):
        state = jax.eval_shape(
            lambda: loop.first_state(algorithm, placement, seeds)(jax.random.key(0), generations)
        )
        shapes = ((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(state))
        return same(algorithm, placement, seeds, *shapes)

    def same_cells(task, *others):
        return identity(task), repr(others)

    def same_made(kind, name, make, *parts, **options):
        own = object() if ":" in name else None  # a user's code may change between calls
        return kind, name, own, identity(make), *map(identity, parts), repr(sorted(options.items()))

    keys = {
        "memes.api.callbacks_outside": same,
        "memes.runner.corrections.reevaluator": same,
        "memes.runner.device.compile_run": same_run,
        "memes.runner.loop.first_state": same,
        "memes.options.from_run.cells_of": same_cells,
        "memes.options.from_run.made": same_made,
        "memes.options.command_line.cells_of": same_cells,
        "memes.options.command_line.made": same_made,
    }
    for path, key in keys.items():
        patch.setattr(path, memoized(pkgutil.resolve_name(path), key, found))
    return found
