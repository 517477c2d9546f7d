"""`memes.run` and `memes.resume`, which check settings and start or continue runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
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
from memes.runner.multihost import process_group
from memes.runner.observers import Checkpoints, Log, Observer, Progress
from memes.runner.placement import placed
from memes.runner.progress import Reporter
from memes.runner.simulators import callbacks_outside
from memes.store.archives import arrays_of
from memes.store.files import as_path, only_writer
from memes.store.find import load_headers, run_folders
from memes.store.folder import (
    Run,
    check_beside,
    check_free,
    holds_run,
    load_corrected,
    remove_run,
    remove_unfinished,
)
from memes.store.provenance import describe, now
from memes.store.schema import Header, Provenance, RunConfig
from memes.validation import check_types, checked, number_of

# The usual observers, in the order in which they are called. Checkpoints are written after corrections,
# so that they contain the corrections.
USUAL: tuple[Any, ...] = (
    DeviceUse, Log, ChangeLog, Corrections, Checkpoints, Progress, Summaries, Figures,
)  # fmt: skip
# Required type and minimum value of each numeric setting. Settings in `config.json` are also checked.
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
# JAX settings that runs do not support. Runs require compilation. NaN represents unknown values, so NaN
# must not raise an error.
IMPOSSIBLE = ("jax_disable_jit", "jax_debug_nans", "jax_debug_infs")
# An algorithm can continue a run only if its options and these entries are the same as in the run's
# `config.json`.
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
@checked  # type: ignore[misc]  # the overloads do not list the options
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
    """Run an algorithm for one or several seeds, and record the results.

    The key of generation g is `fold_in(run_key, g)`. Therefore, results do not depend on the number of
    generations per device call. Ctrl-C and SIGTERM end the run after the current device call, and all
    results are saved.

    Seeds that run together form one batch, which is a `vmap` of the whole run on the device. Their
    results agree with the results of separate runs only up to rounding, because compiled batches round
    differently. In a long search, rounding differences can lead to a different, equally likely result.
    Seeds that run one after the other share one compilation, and their results are bit-identical to the
    results of separate runs.

    Args:
        algorithm: The algorithm, with its task. A task with `jit=False` is evaluated on the host.
        generations: Number of generations. On the command line, the default depends on the scale.
        evaluations: Maximum number of evaluations, as an alternative to `generations`. The run has as
            many whole generations as this number allows. Re-evaluations are not counted.
        seed: Seed of all random numbers.
        seeds: Seeds of several separate runs, as an alternative to `seed`.
        out: Folder for the results. With several seeds, each seed has a subfolder `seed-0`, `seed-1`,
            ... If None, results are kept only in memory.
        overwrite: Whether to replace an existing run in the folder.
        observers: Observers in addition to the usual observers. A given observer replaces a usual
            observer of the same type.
        chunk: Number of evaluations that run together. If None, all evaluations of a generation run
            together, or as many as fit into memory.
        seeds_per_batch: Number of seeds that run as one batch. If None, the batch has as many seeds as
            fit into memory. For tasks with a simulator, the batch has one seed, because one seed uses
            the whole device.
        devices: Number of devices. If None, all GPUs or TPUs are used, or the CPU if there are none.
        shards: Number of parts into which lanes, offspring or seeds are divided. It must be a multiple
            of the number of devices. If None, it is the number of devices. Results depend on the number
            of shards, but not on the number of devices.
        call_seconds: Approximate duration of a device call, in seconds. After each call, progress is
            shown, Ctrl-C is handled and metrics are written.
        progress: Whether to show progress.
        metadata: JSON values to write into `config.json`.

    Returns:
        The run, or a list of runs in the order of their seeds. The list omits runs that an interrupt
        prevented from starting.
    """
    leads = process_group().leads
    algorithm, watching = callbacks_outside(algorithm), with_usual(observers)
    out, progress = (out, progress) if leads else (None, False)
    check_jax()
    chosen = [number_of(each) for each in ([seed] if seeds is None else seeds)]
    for each in chosen:
        check_types({"seeds": each}, {"seeds": int})
    require(len(chosen) >= 1, "seeds must contain at least one seed, got none")
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
    asked = {**numbers, **placement.recorded(), **settings_of(watching)}
    asked["seeds"] = None if seeds is None else chosen
    header = describe(algorithm).updated({**(metadata or {}), **asked})
    folders: list[Path | None] = [None] * len(chosen)
    if out is not None:
        folders = [as_path(out, "out") / ("" if seeds is None else f"seed-{each}") for each in chosen]
    for folder in filter(None, folders):
        check_free(folder, overwrite)
    if out is not None:
        arrays_of(algorithm.cells)  # This call raises an error if the cells cannot be saved.
        check_beside(Path(out), header.config.seeds, overwrite)
    folders = [folder and folder.absolute() for folder in folders]  # a simulator may call `chdir`
    with in_words(out, algorithm), ExitStack() as stack:
        for folder in filter(None, folders):
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(only_writer(folder))
            check_free(folder, overwrite)
            remove_run(folder)
            remove_unfinished(folder)
        starts = [
            (header._replace(config=replace(header.config, seed=seed)), folder)
            for seed, folder in zip(chosen, folders, strict=True)
        ]
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
    """Continue a run that was interrupted or killed, as if it had not been stopped.

    Args:
        algorithm: The algorithm of the run, with the same task, cells and options.
        path: The run's folder, or a folder that contains the runs of several seeds.
        generations: Total number of generations. If None, the total that the run recorded is used.
        seeds: Seeds to continue. If None, all seeds are continued.
        devices: Number of devices. If None, the largest available number that divides the number of
            shards is used.
        observers: Observers in addition to the usual observers, as in `run`. The usual observers use the
            settings that the run recorded.
        progress: Whether to show progress.

    Returns:
        The run, or a list of the continued runs. The list omits seeds that were already finished.
    """
    check_jax()
    processes = process_group()
    progress = progress and processes.leads
    headers = load_headers(path)
    # Wait until all processes have read the folders, because the first process will then write to them.
    processes.agree(lambda: True)
    one = list(headers) == [Path(path)] and seeds is None
    if seeds is not None:
        headers = {folder: found for folder, found in headers.items() if found.config.seed in seeds}
        require(bool(headers), f"seeds: '{path}' contains no run of {', '.join(map(str, seeds))}")
    first = next(iter(headers))
    try:
        watching = with_usual(observers, headers[first].config.settings)
    except UsageError as error:
        raise UsageError(f"the run in '{first}' cannot be resumed: {error}") from error
    algorithm = callbacks_outside(algorithm)
    here = describe(algorithm).updated({})
    starts: list[Start] = []
    for folder, header in headers.items():
        check_numbers(vars(header.config), f" in '{folder / 'config.json'}'")
        config = header.config
        if generations is not None:
            config = replace(config, generations=generations)
            check_numbers(vars(config))
        done, total = header.outcome.generations_done if header.outcome else 0, config.generations
        left = done < total or (done == total and not _concluded(folder, config, algorithm))
        require(
            left or not one,
            f"the run in '{folder}' is finished after {done} generations: extend it with more "
            f"generations, such as --generations {2 * done}"
            + ("" if generations is None else f"; got {total}"),
        )
        _check_same(here.config, config, folder)
        if left:
            together = config.seeds_together or 1
            most = len(config.seeds or [config.seed]) + (config.shards or 1) - 1
            require(
                together <= most,
                f"seeds_together in '{folder / 'config.json'}' must be at most {most} for the seeds of "
                f"the run, got {together}",
            )
            config = replace(config, seeds_together=together)
            provenance = header.provenance.resumed_on(here.provenance.device, now())
            on = Header(config, provenance).updated(settings_of(watching))
            starts.append((on, folder.absolute() if processes.leads else None))
    require(
        bool(starts),
        f"all runs in '{path}' are finished: extend them with more generations (--generations N)",
    )
    for name in ("generations", "seeds_together", "shards"):
        alike = len({getattr(header.config, name) for header, _ in starts}) == 1
        require(alike, f"the runs in '{path}' differ in {name}: resume them one by one")
    config = starts[0][0].config
    size = config.seeds_together or 1
    placement = placed(algorithm, devices, config.shards, size)
    starts = [(header.updated(placement.recorded()), folder) for header, folder in starts]
    moved = _moved(here.provenance, headers[first].provenance)
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


def with_usual(given: Sequence[Any], settings: Mapping[str, Any] | None = None) -> list[Observer]:
    """Return the usual observers, followed by the given observers of other types.

    A given observer replaces the usual observer of the same type. All remaining usual observers use the
    `settings` that a run has recorded, or the defaults.
    """
    own = {type(observer): observer for observer in given if type(observer) in USUAL}
    usual = [own.get(kind) or restored(kind, settings or {}) for kind in USUAL]
    return [*usual, *(observer for observer in given if type(observer) not in USUAL)]


def settings_of(observers: Sequence[Observer]) -> dict[str, Any]:
    """Return the settings of observers as `config.json` stores them.

    The name of each setting of a usual observer starts with the observer's prefix. The settings of
    custom observers are in the entry `observers`, by class name.

    Raises:
        UsageError: If an object is not an observer.
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


def restored(kind: Any, settings: Mapping[str, Any]) -> Any:
    """Return an observer of the given class, with the settings that a run has recorded."""
    names = {f"{kind.prefix}_{field.name}": field.name for field in dataclasses.fields(kind)}
    return kind(**{field: settings[name] for name, field in names.items() if name in settings})


def check_jax() -> None:
    """Raise a `UsageError` if JAX has settings that runs do not support."""
    for name in IMPOSSIBLE:
        require(
            not jax.config.values.get(name),
            f"{name} of JAX is set: memes does not run with it; unset it",
        )


def _generations(algorithm: Algorithm, generations: int | None, evaluations: int | None) -> Any:
    """Return the given number of generations, or derive it from the number of evaluations."""
    require(
        (generations is None) != (evaluations is None),
        "generations or evaluations must set the length of the run: give one of them, "
        + ("not both" if generations is not None else "such as generations=1000"),
    )
    if evaluations is None:
        return generations
    each = algorithm.batch_size * algorithm.task.cost
    require(
        number_of(evaluations) >= each,
        f"evaluations must be at least {each:,} (one generation of {algorithm.name}), got "
        f"{evaluations:,}; use more evaluations or a smaller batch",
    )
    return number_of(evaluations) // each


def check_numbers(given: dict[str, Any], where: str = "") -> None:
    """Raise a `UsageError` if a setting has the wrong type or is out of range."""
    for name, (hint, least) in NUMBERS.items():
        value: Any = given.get(name)
        check_types({f"{name}{where}": value}, {f"{name}{where}": hint})
        in_range = name != "seed" or 0 <= value < SEEDS
        require(in_range, f"seed{where} must lie in [0, 2^32), got {value}")
        if name not in ("seed", "evaluations"):  # `evaluations` only determines `generations`
            at_least(least, **{f"{name}{where}": value})


def _check_same(described: RunConfig, recorded: RunConfig, folder: Path) -> None:
    """Raise a `UsageError` if an algorithm differs from the recorded algorithm of a run."""
    pairs = [(name, getattr(described, name), getattr(recorded, name)) for name in SAME]
    options = recorded.known_options
    pairs += [(name, found, options.get(name)) for name, found in described.options.items()]
    for name, found, expected in pairs:
        require(found == expected, f"{name} of the run in '{folder}' is {expected}, got {found}")


def _moved(here: Provenance, recorded: Provenance) -> Iterator[str]:
    """Yield a message if the device or a package version has changed since the run began."""
    told = [{"device": each.device, **each.versions} for each in (recorded, here)]
    changed = [name for name in told[0] if told[0][name] != told[1].get(name)]
    before, now = (", ".join(f"{name} {each.get(name)}" for name in changed) for each in told)
    if changed:
        yield f"the run began with {before}, and continues with {now}: results may differ"


def _concluded(folder: Path, config: RunConfig, algorithm: Algorithm) -> bool:
    """Return True if the final correction of a run exists or is not required."""
    made = load_corrected(folder).get("generation", np.zeros(0))
    wanted = algorithm.task.uncertain and config.settings.get("reevaluate_every") != 0
    return not wanted or (config.generations in made and (folder / "corrected.npz").exists())


@contextmanager
def in_words(path: str | Path | None, algorithm: Algorithm) -> Iterator[None]:
    """Convert failures of a disk, a simulator or a device into a `RunError` with a clear message."""
    place = None if path is None else Path(path).absolute()
    try:
        yield
    except (OSError, RunError, jax.errors.JaxRuntimeError) as error:
        if isinstance(error, RunError):  # raised by a simulator
            sentence = str(error)
        elif isinstance(error, OSError):
            if path is None:
                raise
            sentence = f"cannot write to '{error.filename or path}': {error.strerror or error}"
        else:
            sentence = f"task '{algorithm.task.name}' failed on the device: {in_a_line(error)}"
        if place is not None and any(map(holds_run, run_folders(place))):
            sentence += f"; 'memes resume {path}' continues from the last checkpoint"
        raise RunError(sentence) from error
