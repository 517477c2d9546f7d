"""Several seeds of one algorithm: as one batch on the device, or one after the other."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from memes.algorithm import Algorithm
from memes.errors import require
from memes.runner import memory
from memes.runner.configuration import configure
from memes.runner.device import Advance, Programs, calls, compile_calls
from memes.runner.log import Log, Record
from memes.runner.loop import callbacks_outside, conclude, keys_of, run
from memes.runner.observers.corrections import Corrections
from memes.runner.progress import Member, Reporter, update_together
from memes.store.files import only_writer
from memes.store.folder import Run, check_free
from memes.task import Task


def run_seeds(
    algorithm: Algorithm,
    *,
    seeds: Sequence[int] = range(10),
    generations: int,
    out: str | Path | None = None,
    together: int | None = None,
    generations_per_call: int | None = None,
    chunk: int | None = None,
    reevaluate_samples: int = 512,
    progress: bool = True,
    settings: dict[str, Any] | None = None,
    batch: Batch | None = None,
) -> list[Run]:
    """Run an algorithm for several seeds; each result is what `run` gives for that seed.

    Seeds that run together are one batch on the device, a `vmap` of the whole run. Compilers round such
    a batch differently: a seed's numbers agree with those of `run` to rounding, which a long search can
    amplify into another, equally likely, course. Seeds that run one after the other are compiled once,
    and agree to the last bit.

    Args:
        algorithm: What to run; it knows its task.
        seeds: A seed for each run.
        generations: For how long.
        out: Folder in which each seed gets a run folder of its own, `seed-0` and so on; None keeps the
            results in memory only. Seeds that run together make no checkpoints.
        together: How many seeds to run as one batch. None is as many as fit into memory, or one if the
            task has a simulator, which fills the device by itself.
        generations_per_call: As in `run`.
        chunk: As in `run`.
        reevaluate_samples: As in `run`: on an uncertain task every archive is corrected at the end.
        progress: Whether to show progress.
        settings: Anything JSON that should be written into each `config.json`.
        batch: What `compile_together` has compiled for these seeds beforehand.

    Returns:
        A result for each seed, in their order. `seconds` are a seed's share of the time of its batch.
    """
    algorithm = callbacks_outside(algorithm)
    require(len(seeds) >= 1, "seeds must name at least one")
    require(len(set(seeds)) == len(seeds), f"seeds must differ, got {', '.join(map(str, seeds))}")
    require(together is None or together >= 1, f"together must be at least 1, got {together}")
    require(
        together in (None, 1) or algorithm.task.jit,
        f"together must be 1 for task '{algorithm.task.name}', which runs on the host, got {together}",
    )
    folders = [None if out is None else Path(out) / f"seed-{seed}" for seed in seeds]
    for folder in folders:
        if folder is not None:
            check_free(folder)
    common: dict[str, Any] = {
        "generations": generations,
        "generations_per_call": generations_per_call,
        "chunk": chunk,
        "reevaluate_samples": reevaluate_samples,
        "settings": settings,
    }
    configs = [
        configure(
            algorithm, seed=seed, checkpoint_every=0, reevaluate_every=None, statistic="median", **common
        )
        for seed in seeds
    ]
    if batch is None:
        batch = compile_together(
            algorithm,
            most_together(algorithm.task, len(seeds), together),
            generations=generations,
            generations_per_call=generations_per_call,
            chunk=chunk,
            progress=progress,
        )
    if batch is None:
        programs: Programs = {}
        return [
            run(algorithm, seed=seed, out=folder, progress=progress, programs=programs, **common)
            for seed, folder in zip(seeds, folders, strict=True)
        ]
    results: list[Run] = []
    for start in range(0, len(seeds), batch.size):
        part = slice(start, start + batch.size)
        results += _run_together(algorithm, batch, configs[part], folders[part], progress)
        batch = batch._replace(compile_seconds=0.0)
    return results


def most_together(task: Task, seeds: int, together: int | None) -> int:
    """How many of so many seeds to run at once, if memory allows it: as asked, or by the task."""
    if together is not None:
        return min(together, seeds)
    # A simulator fills the device by itself.
    return seeds if task.jit and task.control is None else 1


class Batch(NamedTuple):
    """`size` runs at once: what advances them, by the length of a call, and the lengths of the calls."""

    size: int
    advance: dict[int, Advance]
    lengths: list[int]
    compile_seconds: float


def compile_together(
    algorithm: Algorithm,
    seeds: int,
    *,
    generations: int,
    generations_per_call: int | None = None,
    chunk: int | None = None,
    progress: bool = True,
) -> Batch | None:
    """What runs so many seeds at once, or as many as memory allows; None if that is one."""
    algorithm = algorithm._replace(chunk=chunk)
    lengths = calls(generations, generations_per_call)
    size, room = seeds, memory.available()
    started = time.perf_counter()
    with Reporter(show=progress) as report:
        while size > 1:
            report.say(f"compiling {size} seeds of {algorithm.name} together ...")
            init_keys, run_keys = _keys(range(size))
            state = jax.eval_shape(jax.vmap(partial(algorithm.init, generations=generations)), init_keys)
            advance = compile_calls(algorithm, set(lengths), run_keys, state, over=jax.vmap)
            seconds, need = time.perf_counter() - started, memory.most(advance.values())
            report.say(f"compiled in {seconds:.1f} s")
            if need is None or room is None or need <= memory.SHARE * room:
                return Batch(size, advance, lengths, seconds)
            report.say(
                f"that needs {memory.in_words(need)} of the {memory.in_words(room)} that are free"
            )
            size = -(-size // 2)
    return None


def _run_together(
    algorithm: Algorithm,
    batch: Batch,
    configs: list[dict[str, Any]],
    folders: list[Path | None],
    progress: bool,
) -> list[Run]:
    """Runs as one batch; if there are fewer than its size, the last one fills it up."""
    filled = configs + configs[-1:] * (batch.size - len(configs))
    init_keys, run_keys = _keys([config["seed"] for config in filled])
    init = partial(algorithm.init, generations=configs[0]["generations"])
    state = jax.jit(jax.vmap(init))(init_keys)
    unread: list[Record] = []
    with ExitStack() as stack:
        report = stack.enter_context(Reporter(configs[0]["generations"], show=progress))
        logs, members = [], []
        for config, folder in zip(configs, folders, strict=True):
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(only_writer(folder))
            about = {"compile_seconds": batch.compile_seconds, "seeds_together": len(configs)}
            members.append(Member(report, f"seed {config['seed']}"))
            logs.append(Log(folder, members[-1], config | about, runs=len(configs)))
            stack.callback(logs[-1].close)

        def read() -> None:
            record = jax.device_get(unread.pop(0))
            for i, log in enumerate(logs):
                log.write(_one(record, i))
            update_together(report, members)

        report.begin()
        for n in batch.lengths:
            state, record = batch.advance[n](run_keys, state)
            unread.append(record)
            # The device works on the newest chunk while the host reads the one before.
            if len(unread) > 1:
                read()
        read()
        return [
            conclude(
                log.finish(_one(state, i), algorithm),
                Corrections(folder, algorithm.task, config, report),
                lambda: False,
            )
            for i, (log, folder, config) in enumerate(zip(logs, folders, configs, strict=True))
        ]


def _keys(seeds: Sequence[int]) -> tuple[Array, Array]:
    """The keys of several runs, each stacked: [S]."""
    data = [jax.random.key_data(jnp.stack(keys_of(seed))) for seed in seeds]
    init_keys, run_keys = jnp.stack(data, axis=1)
    return jax.random.wrap_key_data(init_keys), jax.random.wrap_key_data(run_keys)


def _one(tree: Any, i: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[i], tree)
