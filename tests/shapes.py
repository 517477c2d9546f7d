"""Check the annotated shapes of arrays. These checks are active only in tests.

An import hook checks the arguments and results of functions. The fields of tuples of arrays are checked
when the library builds the tuples during tracing.
"""

import dataclasses
import functools
import importlib
import sys
import typing
from pathlib import Path

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
from beartype import BeartypeConf, FrozenDict, beartype

# The annotation `jax.Array` also accepts NumPy arrays, and `float` also accepts integers.
_beartype = beartype(
    conf=BeartypeConf(
        hint_overrides=FrozenDict({jax.Array: jax.Array | np.ndarray}), is_pep484_tower=True
    )
)


def typechecker(function):
    """Check the arguments and results of a function, but not the fields of dataclasses.

    JAX builds pytrees with fields of any type, so `check_fields` checks these fields separately.
    """
    return function if function.__name__ == "__init__" else _beartype(function)


CORE = [
    f"memes.{name}"
    for name in (
        "algorithm", "archive", "cells", "context", "control", "deep_archive", "emitters",
        "estimates", "history", "judges", "metrics", "objectives", "presets", "pytrees", "resets",
        "runner.sharding", "selectors", "strategies", "task",
    )
]  # fmt: skip


def check():
    """Enable all checks. Call this before the library is imported."""
    jaxtyping.install_import_hook(CORE, "shapes.typechecker")
    for name in CORE:
        importlib.import_module(name)
    for cls in _classes():
        _restore_init(cls)
    for cls in shaped_types().values():
        _check_where_built(cls)


def _restore_init(cls):
    """Remove jaxtyping's wrapper of `__init__`, which rejects wrong keywords before the class does."""
    init = cls.__init__
    if dataclasses.is_dataclass(cls) and init.__globals__["__name__"].startswith("jaxtyping"):
        cls.__init__ = init.__wrapped__


def check_fields(instance):
    """Raise a `TypeError` if an array of a NamedTuple or dataclass differs from its annotation."""
    hints = typing.get_type_hints(type(instance))
    with jaxtyping.jaxtyped("context"):
        for name, hint in hints.items():
            value = getattr(instance, name)
            if not isinstance(value, (jax.Array, np.ndarray)) or not hasattr(hint, "dim_str"):
                continue  # skip pytrees, and placeholders that JAX uses while it maps a tree
            array = value if hint.array_type is np.ndarray else jnp.asarray(value)
            if not isinstance(array, hint):
                raise TypeError(
                    f"{type(instance).__name__}.{name} must be {hint.__name__}, "
                    f"got {value.dtype}{value.shape}"
                )


def _check_where_built(cls):
    """Check the fields of new tuples if the library builds them, but not if JAX does."""
    new, replace = cls.__new__, cls._replace
    ours = str(Path(importlib.import_module("memes").__file__).parent)

    def checked(instance, caller):
        if caller.f_code.co_filename.startswith(ours):
            check_fields(instance)
        return instance

    @functools.wraps(new)
    def build(cls, *fields, **named):
        return checked(new(cls, *fields, **named), sys._getframe(1))

    @functools.wraps(replace)
    def change(self, /, **named):
        return checked(replace(self, **named), sys._getframe(1))

    cls.__new__, cls._replace = build, change


def shaped_types():
    """Return a dictionary of the tuple classes in the core that annotate the shapes of arrays."""
    return {
        cls.__name__: cls
        for cls in _classes()
        if issubclass(cls, tuple)
        and any(hasattr(hint, "dim_str") for hint in typing.get_type_hints(cls).values())
    }


def _classes():
    """Return the classes of the core, sorted by name."""
    modules = [module for name, module in sys.modules.items() if name.startswith(tuple(CORE))]
    classes = {cls for module in modules for cls in vars(module).values() if isinstance(cls, type)}
    ours = (cls for cls in classes if cls.__module__.startswith("memes."))
    return sorted(ours, key=lambda cls: cls.__name__)
