"""`memes.run` and `memes.resume`: from the settings of runs to what is left of them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, overload

import jax
import numpy as np

from memes.algorithm import Algorithm
from memes.analysis.end_of_run import Figures, Summaries
from memes.errors import RunError, UsageError, at_least, in_a_line, require
from memes.runner.change_log import ChangeLog
from memes.runner.corrections import Corrections
from memes.runner.device import most_together
from memes.runner.device_use import DeviceUse
from memes.runner.loop import Start, run_all
from memes.runner.multihost import present
from memes.runner.observers import Checkpoints, Log, Observer, Progress
from memes.runner.placement import placed
from memes.runner.progress import Reporter
from memes.runner.simulators import callbacks_outside
from memes.store.files import as_path, intact, only_writer
from memes.store.find import begun, run_folders
from memes.store.folder import (
    ENDED,
    ONCE_ABSENT,
    Run,
    check_beside,
    check_free,
    holds_run,
    load_corrected,
    plain,
    remove_run,
    remove_unfinished,
)
from memes.store.provenance import describe, now
from memes.validation import check_types, checked, number_of

# In the order in which they see a run. A checkpoint comes after the correction that it is to know of.
USUAL: tuple[Any, ...] = (
    DeviceUse, Log, ChangeLog, Corrections, Checkpoints, Progress, Summaries, Figures,
)  # fmt: skip
# The type and the least of each setting that is a number. Those of a `config.json` are checked as well.
NUMBERS: dict[str, tuple[Any, int]] = {
    "generations": (int, 1),
    "evaluations": (int | None, 1),
    "seed": (int, 0),
    "call_seconds": (float, 0),
    "chunk": (int | None, 1),
    "seeds_per_batch": (int | None, 1),
    "seeds_together": (int | None, 1),
    "devices": (int | None, 1),
    "shards": (int | None, 1),
}
SEEDS = 2**32
# Without compilation, and with NaN as an error, which stands for what is unknown, nothing runs.
IMPOSSIBLE = ("jax_disable_jit", "jax_debug_nans", "jax_debug_infs")
THEN = ", then "  # between the devices of a run that went on elsewhere
UNRECORDED = {"call_seconds": 1.0, "chunk": None, "shards": 1}  # by version 0.1
# What a run and the algorithm that goes on with it must agree on, besides options.
SAME = (
    "algorithm", "task_name", "dim", "cells", "feature_low", "feature_high", "min_fitness", "batch_size",
)  # fmt: skip


@overload
def run(
    algorithm: Algorithm, *, generations: int | None = None, seeds: None = None, **options: Any
) -> Run: ...
@overload
def run(
    algorithm: Algorithm, *, generations: int | None = None, seeds: Sequence[int], **options: Any
) -> list[Run]: ...
@checked  # type: ignore[misc]  # which has the options one by one
def run(
    algorithm: Algorithm,
    *,
    generations: int | None = None,
    evaluations: int | None = None,
    seed: int = 0,
    seeds: Sequence[int] | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    observers: Sequence[Any] = (),
    chunk: int | None = None,
    seeds_per_batch: int | None = None,
    devices: int | None = None,
    shards: int | None = None,
    call_seconds: float = 1.0,
    progress: bool = True,
    metadata: dict[str, Any] | None = None,
) -> Run | list[Run]:
    """Run an algorithm, for one seed or for several, and record what happens.

    The key of generation g is `fold_in(run_key, g)`: results do not depend on how a run is cut into
    calls of the device. Ctrl-C and SIGTERM end the run after the generations computed so far, with
    everything saved.

    Seeds that run together are one batch on the device, a `vmap` of the whole run. Compilers round such
    a batch differently: a seed's numbers agree with those of a run of its own to rounding, which a long
    search can amplify into another, equally likely, course. Seeds that run one after the other are
    compiled once, and agree to the last bit.

    Args:
        algorithm: What to run; it knows its task. A task with `jit=False` is evaluated on the host.
        generations: For how many generations to run; a command has the number of its scale.
        evaluations: For how many evaluations to run, in place of generations: as many whole generations
            as they allow. Re-evaluations are not counted.
        seed: Seed of all randomness.
        seeds: Seeds of several runs, instead of `seed`; then there is a run for each of them.
        out: Folder for the results, or for a folder `seed-0`, ... of each seed; None keeps them in
            memory only.
        overwrite: Replace a run that the folder already holds.
        observers: What the run does besides advancing. They join the usual ones, and replace those of
            their own type.
        chunk: How many rows to evaluate at a time; None is all, or fewer if they do not fit into memory.
        seeds_per_batch: How many seeds to run as one batch; None is as many as fit into memory, or one
            if the task has a simulator, which fills the device by itself.
        devices: How many devices to run on; None is all GPUs or TPUs, or one CPU.
        shards: Parts that lanes, offspring or seeds are divided into, a multiple of the devices; None is
            as many as devices. Results depend on it, and not on the devices that compute the shards.
        call_seconds: How long a call of the device takes, about. Progress moves, Ctrl-C is heard and
            metrics are written once a call.
        progress: Whether to show progress.
        metadata: Anything JSON that should be written into `config.json`.

    Returns:
        The run, or the runs in the order of their seeds; without those that an interrupt left undone.
    """
    leads = present().leads
    algorithm, watching = callbacks_outside(algorithm), with_usual(observers)
    out, progress = (out, progress) if leads else (None, False)
    check_jax()
    chosen = [number_of(each) for each in ([seed] if seeds is None else seeds)]
    require(len(chosen) >= 1, "seeds must name at least one")
    require(len(set(chosen)) == len(chosen), f"seeds must differ, got {', '.join(map(str, chosen))}")
    given = {
        "generations": _generations(algorithm, generations, evaluations),
        "evaluations": evaluations,
        "chunk": chunk,
        "seeds_per_batch": seeds_per_batch,
        "devices": devices,
        "shards": shards,
        "call_seconds": call_seconds,
    }
    numbers = {name: number_of(value) for name, value in given.items()}
    for each in chosen:
        check_numbers(numbers | {"seed": each})
    require(
        seeds_per_batch in (None, 1) or algorithm.task.jit,
        f"seeds_per_batch must be 1 for task '{algorithm.task.name}', which runs on the host, got "
        f"{seeds_per_batch}",
    )
    size = most_together(algorithm.task, len(chosen), seeds_per_batch)
    placement = placed(algorithm, devices, shards, size)
    numbers |= placement.recorded()
    config = {**describe(algorithm), **(metadata or {}), **numbers, **settings_of(watching)}
    config["seeds"] = None if seeds is None else chosen
    folders: list[Path | None] = [None] * len(chosen)
    if out is not None:
        folders = [as_path(out, "out") / ("" if seeds is None else f"seed-{each}") for each in chosen]
    for folder in filter(None, folders):
        check_free(folder, overwrite)
    if out is not None:
        check_beside(Path(out), config["seeds"], overwrite)
    folders = [folder and folder.absolute() for folder in folders]  # a simulator may go elsewhere
    with in_words(out, algorithm), ExitStack() as stack:
        for folder in filter(None, folders):
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(only_writer(folder))
            check_free(folder, overwrite)
            remove_run(folder)
            remove_unfinished(folder)
        starts = [(config | {"seed": s}, folder) for s, folder in zip(chosen, folders, strict=True)]
        runs = run_all(
            algorithm, starts, watching, progress=progress, seeds_per_batch=size, placement=placement
        )
    return runs[0] if seeds is None else runs


@overload
def resume(
    algorithm: Algorithm, path: str | Path, *, seeds: None = None, **options: Any
) -> Run | list[Run]: ...
@overload
def resume(
    algorithm: Algorithm, path: str | Path, *, seeds: Sequence[int], **options: Any
) -> list[Run]: ...
@checked  # type: ignore[misc]
def resume(
    algorithm: Algorithm,
    path: str | Path,
    *,
    generations: int | None = None,
    seeds: Sequence[int] | None = None,
    devices: int | None = None,
    observers: Sequence[Any] = (),
    progress: bool = True,
) -> Run | list[Run]:
    """Go on with a run that was interrupted or killed, as if it had never stopped.

    Args:
        algorithm: What the run is of: the same algorithm, task and cells, with the same options.
        path: The run's folder, or one with the folders of several seeds.
        generations: For how many generations in all; None is what was asked of the run.
        seeds: Only these of several seeds; None is all.
        devices: How many devices to go on with; None is as many as there are and divide the shards.
        observers: As in `run`; the usual ones have the settings of the run.
        progress: Whether to show progress.

    Returns:
        The run, or the runs of those seeds that were not done.
    """
    check_jax()
    team = present()
    progress = progress and team.leads
    configs = {folder: UNRECORDED | config for folder, config in begun(path).items()}
    team.agree(lambda: True)  # all have read them: the first may write
    one = list(configs) == [Path(path)] and seeds is None
    if seeds is not None:
        configs = {folder: found for folder, found in configs.items() if found.get("seed") in seeds}
        require(bool(configs), f"seeds: '{path}' holds no run of {', '.join(map(str, seeds))}")
    first = next(iter(configs))
    try:
        watching = with_usual(observers, configs[first])
    except UsageError as error:
        raise UsageError(f"the run in '{first}' cannot be resumed: {error}") from error
    algorithm = callbacks_outside(algorithm)
    described = json.loads(json.dumps(describe(algorithm), default=plain))
    moved = list(_moved(described, configs[first]))  # now: their devices are put together below
    starts: list[Start] = []
    for folder, config in configs.items():
        with intact(folder / "config.json"):
            check_numbers(config, f" in '{folder / 'config.json'}'")
            if generations is not None:
                config["generations"] = generations
                check_numbers(config)
            done, total = config.get("generations_done", 0), config["generations"]
            left = done < total or (done == total and not _concluded(folder, config, algorithm))
            require(
                left or not one,
                f"the run in '{folder}' is finished: extend it with more than its {done} generations, "
                f"by --generations {2 * done}" + ("" if generations is None else f"; got {total}"),
            )
            _check_same(described, config, folder)
            for old in ENDED:
                config.pop(old, None)
            config |= {"resumed": [*config.get("resumed", []), now()], **settings_of(watching)}
            config["seeds_together"] = config.get("seeds_together") or 1
            most = len(config.get("seeds") or [config["seed"]]) + (config["shards"] or 1) - 1
            require(
                config["seeds_together"] <= most,
                f"seeds_together in '{folder / 'config.json'}' must be at most {most}, as there are "
                f"seeds, got {config['seeds_together']}",
            )
            before = str(config.get("device") or described["device"]).split(THEN)
            config["device"] = THEN.join(dict.fromkeys([*before, described["device"]]))
        if left:
            starts.append((config, folder.absolute() if team.leads else None))
    require(
        bool(starts),
        f"all runs in '{path}' are finished: extend them with more generations, by --generations N",
    )
    for name in ("generations", "seeds_together", "shards"):
        alike = len({config[name] for config, _ in starts}) == 1
        require(alike, f"the runs in '{path}' differ in {name}: resume them one by one")
    size = starts[0][0]["seeds_together"]
    placement = placed(algorithm, devices, starts[0][0]["shards"], size)
    for config, _ in starts:
        config |= placement.recorded()
    for sentence in moved:
        Reporter(show=progress).say(sentence)
    with in_words(path, algorithm), ExitStack() as stack:
        for place in filter(None, (folder for _, folder in starts)):
            stack.enter_context(only_writer(place))
            remove_unfinished(place)
        runs = run_all(
            algorithm,
            starts,
            watching,
            progress=progress,
            seeds_per_batch=size,
            placement=placement,
            exactly=True,
        )
    return runs[0] if one else runs


def with_usual(given: Sequence[Any], config: Mapping[str, Any] | None = None) -> list[Observer]:
    """The usual observers, each replaced by one of its own type if it is given, and the others.

    Those that are not given have the settings that a run has recorded in its `config`, or the defaults.
    """
    own = {type(observer): observer for observer in given if type(observer) in USUAL}
    usual = [own.get(kind) or restored(kind, config or {}) for kind in USUAL]
    return [*usual, *(observer for observer in given if type(observer) not in USUAL)]


def settings_of(observers: Sequence[Observer]) -> dict[str, Any]:
    """The settings of observers as `config.json` has them: by prefix, or by the observer's name.

    Raises a `UsageError` that names what cannot watch a run.
    """
    found: dict[str, Any] = {}
    for observer in observers:
        can_watch = callable(getattr(observer, "watch", None)) and not isinstance(observer, type)
        require(can_watch, f"observers must each have a method watch, got {observer!r}")
        own: Any = dataclasses.fields(observer) if dataclasses.is_dataclass(observer) else ()
        values = {field.name: getattr(observer, field.name) for field in own}
        prefix = getattr(observer, "prefix", None)
        if prefix is not None:
            found |= {f"{prefix}_{name}": value for name, value in values.items()}
        else:
            found.setdefault("observers", {})[type(observer).__name__] = values
    return found


def restored(kind: Any, config: Mapping[str, Any]) -> Any:
    """An observer of the kind, with those settings that a run has recorded."""
    names = {f"{kind.prefix}_{field.name}": field.name for field in dataclasses.fields(kind)}
    return kind(**{field: config[name] for name, field in names.items() if name in config})


def check_jax() -> None:
    """Raise a `UsageError` if JAX is set to what no run can do with."""
    for name in IMPOSSIBLE:
        require(not jax.config.values.get(name), f"{name} of JAX is set: memes does not run with it")


def _generations(algorithm: Algorithm, generations: int | None, evaluations: int | None) -> Any:
    """The length of a run: the generations, or as many as the evaluations allow."""
    require(
        (generations is None) != (evaluations is None),
        "generations or evaluations must say how long the run is: give one of them, "
        + ("not both" if generations is not None else "such as generations=1000"),
    )
    if evaluations is None:
        return generations
    each = algorithm.batch_size * algorithm.task.cost
    require(
        number_of(evaluations) >= each,
        f"evaluations must be at least the {each:,} of one generation of {algorithm.name}, got "
        f"{evaluations:,}; choose more, or a smaller batch",
    )
    return number_of(evaluations) // each


def check_numbers(given: dict[str, Any], where: str = "") -> None:
    """Raise a `UsageError` that names what is no number, or too small."""
    for name, (hint, least) in NUMBERS.items():
        value: Any = given.get(name)
        check_types({f"{name}{where}": value}, {f"{name}{where}": hint})
        in_range = name != "seed" or 0 <= value < SEEDS
        require(in_range, f"seed{where} must lie in [0, 2^32), got {value}")
        if name != "seed":
            at_least(least, **{f"{name}{where}": value})


def _check_same(described: dict[str, Any], config: dict[str, Any], folder: Path) -> None:
    """Raise a `UsageError` unless an algorithm, as described, is that of a run's `config.json`."""
    pairs = [(name, described[name], config.get(name)) for name in SAME]
    recorded = ONCE_ABSENT | config["options"]
    pairs += [(name, found, recorded.get(name)) for name, found in described["options"].items()]
    for name, found, expected in pairs:
        require(found == expected, f"{name} of the run in '{folder}' is {expected}, got {found}")


def _moved(described: dict[str, Any], config: dict[str, Any]) -> Iterator[str]:
    """Say what is not where, or with what, a run began."""
    told = [
        {"device": each.get("device"), **(each.get("versions") or {})} for each in (config, described)
    ]
    changed = [name for name in told[0] if told[0][name] != told[1].get(name)]
    before, here = (", ".join(f"{name} {each.get(name)}" for name in changed) for each in told)
    if changed:
        yield f"the run began with {before}, and goes on with {here}: it may take another course"


def _concluded(folder: Path, config: dict[str, Any], algorithm: Algorithm) -> bool:
    """Does a run with all of its generations have the correction that it should have?"""
    made = load_corrected(folder).get("generation", np.zeros(0))
    wanted = algorithm.task.uncertain and config.get("reevaluate_every") != 0
    return not wanted or (config["generations"] in made and (folder / "corrected.npz").exists())


@contextmanager
def in_words(path: str | Path | None, algorithm: Algorithm) -> Iterator[None]:
    """Turn what ends a run from outside into a sentence: a disk, a simulator or a device that fails."""
    place = None if path is None else Path(path).absolute()
    try:
        yield
    except (OSError, RunError, jax.errors.JaxRuntimeError) as error:
        if isinstance(error, RunError):  # of a simulator
            sentence = str(error)
        elif isinstance(error, OSError):
            if path is None:
                raise
            sentence = f"cannot write to '{path}': {error.strerror or error}"
        else:
            sentence = f"task '{algorithm.task.name}' failed on the device: {in_a_line(error)}"
        if place is not None and any(map(holds_run, run_folders(place))):
            sentence += f"; 'memes resume {path}' continues from the last checkpoint"
        raise RunError(sentence) from error
