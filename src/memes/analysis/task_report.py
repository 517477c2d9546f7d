"""The function `memes.check`, which measures the cost of a task, checks it, and suggests a run."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from typing import NamedTuple

import jax
import numpy as np
from jax import Array
from jaxtyping import Float

from memes.archive import finite
from memes.cells import Cells, Grid, grid
from memes.errors import at_least, positive, require
from memes.executors.remote_evaluation import RemoteEvaluator
from memes.executors.task_check import alike
from memes.executors.task_check import check as check_shapes
from memes.pytrees import take
from memes.runner import memory
from memes.runner.findings import FAULTS, Finding, findings, observe, uses_keys
from memes.runner.progress import duration
from memes.runner.simulators import on_host, surviving
from memes.task import Evaluation, Task, evaluate, initial
from memes.validation import checked

ROWS = {"cpu": 1024}  # batch size with which a compiled task is timed
ROWS_ELSEWHERE = 16_384
# Time limit in seconds. If a batch of `ROWS` evaluations would take longer, only the evaluations of the
# checked genotypes are timed.
PATIENCE = 5.0

# docs/howto/choose.md gives the evidence for these limits.
PAPER = 2000 * 16_384  # Number of evaluations of a run in the paper.
LONGEST = {"paper": PAPER, "laptop": 10_000_000}  # Maximum number of evaluations of a suggested run.
MANY = 7_000_000  # Number of evaluations above which evolution strategies are better than MAP-Elites.
# Number of evaluations above which ME-Sampling is better than MAP-Elites on uncertain tasks.
SOME = 500_000
FEW_PARAMETERS = 100
GENERATIONS = 64  # Minimum number of generations of MAP-Elites. It limits the batch size.
SAMPLES = {"paper": 512, "laptop": 64}  # Number of re-evaluations per elite.
LAPTOP: dict[str, dict[str, int]] = {
    "me-sampling": {"batch": 512, "resamples": 8},
    "memes-hybrid": {"batch": 2048, "lanes": 8, "samples": 128, "candidate_samples": 8},
    "memes-me": {"batch": 2048, "samples": 128},
}


class NoiseLevel(NamedTuple):
    """Standard deviations over repeated evaluations of one genotype.

    Attributes:
        fitness: Standard deviation of the fitness, divided by the standard deviation of the
            genotypes' mean fitness.
        feature: Standard deviation of each feature, in cell widths.
    """

    fitness: float
    feature: tuple[float, ...]


class Advice(NamedTuple):
    """A run that suits a task and a budget.

    Attributes:
        algorithm: Name of the preset.
        scale: "paper" or "laptop".
        options: Options of the preset that differ from its defaults.
        evaluations: Number of evaluations of the search.
        reevaluations: Maximum number of evaluations of the final correction; 0 for a deterministic task.
        limited: Whether the run must limit the correction, because the re-evaluation of all elites would
            take longer than the search.
        seconds: Total time of the evaluations, in seconds.
        reason: Reason for the choice of the algorithm.
    """

    algorithm: str
    scale: str
    options: dict[str, int]
    evaluations: int
    reevaluations: int
    limited: bool
    seconds: float
    reason: str

    def in_python(self) -> str:
        """Return the run as a Python expression, in which the task is called `task`."""
        options = "".join(f", {name}={value}" for name, value in self.options.items())
        corrections = [f"samples={SAMPLES[self.scale]}"] if self.scale == "laptop" else []
        corrections += ["limit=1.0"] if self.limited else []
        observers = f", observers=[memes.Corrections({', '.join(corrections)})]"
        watched = observers if self.reevaluations and corrections else ""
        built = f'memes.PRESETS["{self.algorithm}"].build(task{options})'
        return f"memes.run({built}, evaluations={self.evaluations}{watched})"

    def on_command_line(self, task: str) -> str:
        """Return the run as a command for the task with the name `task`."""
        scale = ["--scale laptop"] if self.scale == "laptop" else []
        options = [f"--{name.replace('_', '-')} {value}" for name, value in self.options.items()]
        limit = ["--reevaluate-limit 1"] if self.limited else []
        words = [task, *scale, f"--algorithm {self.algorithm}", *options, *limit]
        return f"memes run {' '.join(words)} --evaluations {self.evaluations}"


@dataclass(frozen=True, kw_only=True, repr=False)
class TaskReport:
    """The findings of `memes.check` about a task. `print` shows them on one screen.

    Attributes:
        task: The task.
        cells: The cells of its archive.
        device: The device that evaluates the task.
        genotypes: Number of random genotypes, each of which was evaluated twice.
        seconds: Time per evaluation, in seconds.
        rows: Batch size with which `seconds` and `memory` were measured.
        compile_seconds: Compilation time, in seconds; None if nothing is compiled.
        memory: Memory for a batch of `rows` evaluations, in bytes; None if unknown.
        archive_memory: Memory for the archive, in bytes.
        outside: Share of the valid evaluations with features outside the bounds.
        low: Smallest value of each feature.
        high: Greatest value of each feature.
        fitness: Smallest, median and greatest fitness; NaN if there is no valid evaluation.
        noise: Evaluation noise; None if repeated evaluations of a genotype are equal.
        faults: Number of evaluations with each `Fault`.
        reached: Number of cells that contain at least one of the random genotypes.
        findings: Problems of the task, with remedies.
        advice: The suggested run, which fits the budget.
        command: The suggested run, as a command or as a Python expression.
    """

    task: Task
    cells: Cells
    device: str
    genotypes: int
    seconds: float
    rows: int
    compile_seconds: float | None
    memory: int | None
    archive_memory: int
    outside: float
    low: tuple[float, ...]
    high: tuple[float, ...]
    fitness: tuple[float, float, float]
    noise: NoiseLevel | None
    faults: tuple[int, ...]
    reached: int
    findings: tuple[Finding, ...]
    advice: Advice
    command: str = field(default="")

    @property
    def fatal(self) -> bool:
        """True if a problem makes runs of the task meaningless."""
        return any(finding.fatal for finding in self.findings)

    def lines(self) -> dict[str, str]:
        """Return the report as one string per topic."""
        task, advice = self.task, self.advice
        compiled = "" if self.compile_seconds is None else f", compiled in {self.compile_seconds:.1f} s"
        needed = "" if self.memory is None else f"{_size(self.memory)} for {self.rows:,} evaluations, "
        faults = zip(FAULTS.values(), self.faults, strict=True)
        bounds = zip(self.low, self.high, task.feature_low, task.feature_high, strict=True)
        ranges = [f"{a:.3g} to {b:.3g} in {low:g} to {high:g}" for a, b, low, high in bounds]
        least, median, most = self.fitness
        again = f" and at most {advice.reevaluations:,} of re-evaluation" * bool(advice.reevaluations)
        return {
            "genotypes": f"{self.genotypes} of {task.dim:,} numbers, each evaluated twice on "
            f"{self.device}",
            "time": f"{short_time(self.seconds)} per evaluation, {self.rows:,} at a time{compiled}",
            "memory": f"{needed}{_size(self.archive_memory)} for the archive",
            "fitness": f"{least:.4g} to {most:.4g}, median {median:.4g}; "
            f"min_fitness {task.min_fitness:g}",
            "features": f"{'; '.join(ranges)}; {self.outside:.0%} of the evaluations outside",
            "noise": self._noise(),
            "faults": ", ".join(f"{count} {what}" for what, count in faults if count) or "none",
            "cells": f"{self.reached} of {self.cells.count:,} reached by random genotypes",
            "suggested": f"{advice.algorithm}, {advice.scale} scale: {advice.evaluations:,} evaluations"
            f"{again}, about {duration(advice.seconds)} without the time of the algorithm itself",
            "because": advice.reason,
        }

    def _noise(self) -> str:
        declared = f"uncertain={self.task.uncertain}"
        if self.noise is None:
            return f"none, evaluations of the same genotype are equal; {declared}"
        cells = ", ".join(f"{sd:.2g}" for sd in self.noise.feature)
        return (
            f"{self.noise.fitness:.2g} times the spread over genotypes for the fitness, {cells} cells "
            f"for the features; {declared}"
        )

    def __repr__(self) -> str:
        """Return the report as text that fits on one screen."""
        lines = [f"task '{self.task.name}'"]
        lines += [f"  {topic:10} {text}" for topic, text in self.lines().items()]
        lines += [
            f"  {'ERROR' if each.fatal else 'warning':10} {each.sentence}" for each in self.findings
        ]
        return "\n".join([*lines, f"  {self.command}"])


def _size(number: int) -> str:
    return memory.in_words(number) if number >= 2**20 else "less than 1 MiB"


def short_time(seconds: float) -> str:
    """Format a time with a suitable unit, such as 2.1 us, 15 ms or 3.2 s."""
    units = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
    unit = next((unit for unit, size in units.items() if seconds >= size), "us")
    return f"{seconds / units[unit]:.3g} {unit}"


@checked
def check(
    task: Task,
    *,
    cells: Cells | None = None,
    genotypes: int = 32,
    minutes: float = 30.0,
    evaluations: int | None = None,
    seed: int = 0,
) -> TaskReport:
    """Evaluate random genotypes twice, and report the cost and the problems of a task.

    Args:
        task: The task.
        cells: Cells of the archive; by default, the grid of the task.
        genotypes: Number of genotypes to evaluate.
        minutes: Time budget of the suggested run, including re-evaluation, in minutes.
        evaluations: Number of evaluations of the suggested search. If given, `minutes` is ignored.
        seed: Seed for the genotypes and for their evaluations.

    Returns:
        The report, which `print` shows on one screen.
    """
    at_least(2, genotypes=genotypes)
    at_least(1, evaluations=evaluations)
    at_least(0, seed=seed)
    positive(minutes=minutes)
    check_shapes(task)
    found = grid(task) if cells is None else cells
    require(
        found.low.shape == (task.feature_dim,),
        f"cells must have {task.feature_dim} features like task '{task.name}', got {found.low.shape[0]}",
    )
    init_key, *keys = jax.random.split(jax.random.key(seed), 4)
    x = initial(task, init_key, genotypes)
    raised: list[str] = []
    both, timing = _evaluated_twice(on_host(task), x, keys, raised)
    first, again = take(both, 0, genotypes), take(both, genotypes, 2 * genotypes)

    differs = not alike(first, again)
    noisy = True if differs else (None if task.jit and uses_keys(task) else False)
    seen = observe(both, found, noisy)
    least = (np.nan,) * task.feature_dim
    usable = bool(len(seen.fitness))
    ranges = (seen.feature.min(axis=0), seen.feature.max(axis=0)) if usable else (least, least)
    low, high = (tuple(float(value) for value in bound) for bound in ranges)
    quantiles = np.quantile(seen.fitness, (0, 0.5, 1)) if usable else np.full(3, np.nan)
    reached = len(np.unique(np.asarray(found.index(seen.feature)))) if usable else 0
    seconds = max(timing.seconds, 1e-9)
    advice = advise(
        task,
        found.count,
        seconds=seconds,
        uncertain=task.uncertain or differs,
        gpu=jax.default_backend() != "cpu",
        evaluations=evaluations if evaluations is not None else int(60 * minutes / seconds),
        includes_corrections=evaluations is None,
    )
    notes = [Finding("faults", sentence) for sentence in raised]
    if reached == 1 and genotypes > 2:
        notes.append(
            Finding("bounds", f"all features of task '{task.name}' lie in one cell of {found.count:,}")
        )
    return TaskReport(
        task=task,
        cells=found,
        device=_device(task),
        genotypes=genotypes,
        seconds=seconds,
        rows=timing.rows,
        compile_seconds=timing.compile_seconds,
        memory=timing.memory,
        archive_memory=4 * found.count * (task.dim + task.feature_dim + 3),
        outside=seen.outside / max(seen.usable, 1),
        low=low,
        high=high,
        fitness=tuple(quantiles.tolist()),
        noise=noise_of(first, again, found) if differs else None,
        faults=seen.faults,
        reached=reached,
        findings=(*findings(task, seen), *notes),
        advice=advice,
        command=advice.in_python(),
    )


class Timing(NamedTuple):
    """The cost of evaluations in batches of size `rows`.

    Attributes:
        seconds: Time per evaluation, in seconds.
        rows: Batch size.
        compile_seconds: Compilation time, in seconds; None if nothing is compiled.
        memory: Memory for one batch, in bytes; None if unknown.
    """

    seconds: float
    rows: int
    compile_seconds: float | None
    memory: int | None


def _evaluated_twice(
    task: Task, x: Array, given: Sequence[Array], raised: list[str]
) -> tuple[Evaluation, Timing]:
    """Evaluate genotypes `x[n, d]` with each of the first two keys, and measure the evaluation time.

    Compiled tasks are timed with a larger batch and the third key, unless this would take too long.
    """
    n, keys = len(x), [jax.random.split(key, len(x)) for key in given[:2]]
    if not task.jit:
        here = surviving(task, raised.append, 2 * n)
        first = jax.device_get(evaluate(here, keys[0], x))
        start = time.perf_counter()  # the first evaluation includes preparations
        again = jax.device_get(evaluate(here, keys[1], x))
        seconds = (time.perf_counter() - start) / n
        both = jax.tree.map(lambda a, b: np.concatenate([a, b]), first, again)
        return both, Timing(seconds, n, None, None)
    start = time.perf_counter()
    compiled = jax.jit(partial(evaluate, task)).lower(keys[0], x).compile()
    spent = time.perf_counter() - start
    first = jax.device_get(compiled(keys[0], x))
    start = time.perf_counter()
    again = jax.device_get(compiled(keys[1], x))
    seconds = (time.perf_counter() - start) / n
    both = jax.tree.map(lambda a, b: np.concatenate([a, b]), first, again)
    rows = ROWS.get(jax.default_backend(), ROWS_ELSEWHERE)
    if rows <= n or seconds * rows > PATIENCE:
        return both, Timing(seconds, n, spent, memory.needed(compiled))
    more = jax.random.split(given[2], rows), np.resize(np.asarray(x), (rows, task.dim))
    start = time.perf_counter()
    compiled = jax.jit(partial(evaluate, task)).lower(*more).compile()
    spent = time.perf_counter() - start
    jax.device_get(compiled(*more))
    start = time.perf_counter()
    jax.device_get(compiled(*more))
    return both, Timing((time.perf_counter() - start) / rows, rows, spent, memory.needed(compiled))


def _device(task: Task) -> str:
    if isinstance(task.evaluate, RemoteEvaluator):
        return str(task.evaluate)
    device = jax.devices()[0]
    kind = f"{device.platform}: {device.device_kind}"
    return kind if task.jit else "the host, in this process"


def noise_of(first: Evaluation, again: Evaluation, cells: Cells) -> NoiseLevel:
    """Estimate the evaluation noise from two evaluations of each of n genotypes.

    Genotypes with an invalid evaluation are ignored. If a and b are the two evaluations of a genotype,
    the standard deviation over repeated evaluations is sqrt(mean((a - b)^2) / 2).
    """
    usable = np.asarray(finite(first) & finite(again))
    if not usable.any():
        return NoiseLevel(math.nan, (math.nan,) * len(cells.low))

    def deviation(a: Array, b: Array) -> Float[np.ndarray, "*k"]:
        apart = np.asarray(a, float)[usable] - np.asarray(b, float)[usable]
        found: np.ndarray = np.sqrt(np.mean(np.square(apart), axis=0) / 2)
        return found

    middle = (np.asarray(first.fitness, float) + np.asarray(again.fitness, float))[usable] / 2
    spread = float(np.std(middle))
    fitness = float(deviation(first.fitness, again.fitness))
    k = len(cells.low)
    shape = cells.shape if isinstance(cells, Grid) else (cells.count ** (1 / k),) * k
    width = (np.asarray(cells.high, float) - np.asarray(cells.low, float)) / np.asarray(shape)
    feature = deviation(first.feature, again.feature) / width
    return NoiseLevel(fitness / spread if spread else math.inf, tuple(feature.tolist()))


def advise(
    task: Task,
    cells: int,
    *,
    seconds: float,
    uncertain: bool,
    gpu: bool,
    evaluations: int,
    includes_corrections: bool,
) -> Advice:
    """Choose the algorithm, scale and length of a run according to docs/howto/choose.md.

    Args:
        task: The task.
        cells: Number of cells of the archive.
        seconds: Time per evaluation, in seconds.
        uncertain: Whether the task is uncertain. If it is uncertain, the archive will be corrected.
        gpu: Whether the device is fast enough for the batch sizes of the paper.
        evaluations: Maximum number of evaluations.
        includes_corrections: Whether `evaluations` includes the re-evaluation of the archive.
    """
    scale = "paper" if gpu and task.jit and evaluations >= PAPER // 2 else "laptop"
    corrected = cells * SAMPLES[scale] if uncertain else 0
    search = evaluations
    if includes_corrections:
        search = max(evaluations - corrected, evaluations // 2 if uncertain else evaluations)
    search = _rounded_down(min(max(search, 16), LONGEST[scale]))
    limited = corrected > search
    corrected = min(corrected, search)
    algorithm, reason = _algorithm(task, uncertain, search)
    options = dict(LAPTOP.get(algorithm, {})) if scale == "laptop" else {}
    if algorithm in ("me", "cma-me"):
        most = {"me": 2048 if scale == "laptop" else 16_384, "cma-me": 128}[algorithm]
        batch = 2 ** int(math.log2(max(search / GENERATIONS, 8)))
        options = {"batch": min(batch, most)}
    total = (search + corrected) * seconds
    # Tasks with `jit=False` need no explicit limit, because their corrections are limited by default.
    return Advice(algorithm, scale, options, search, corrected, limited and task.jit, total, reason)


def _algorithm(task: Task, uncertain: bool, evaluations: int) -> tuple[str, str]:
    """Choose an algorithm for a number of evaluations, and return its name and the reason."""
    if uncertain:
        if evaluations < SOME:
            return "me", f"MAP-Elites is better below {SOME:,} evaluations, even on uncertain tasks"
        if evaluations < MANY:
            return (
                "me-sampling",
                f"evaluating offspring several times is better below {MANY:,} evaluations",
            )
        return "memes-hybrid", f"better on uncertain tasks with more than {MANY:,} evaluations"
    if task.dim < FEW_PARAMETERS and find_spec("evosax"):
        return "cma-me", f"deterministic, with less than {FEW_PARAMETERS} parameters"
    if evaluations < MANY:
        return "me", f"deterministic, with less than {MANY:,} evaluations"
    return "memes-me", f"deterministic, with more than {MANY:,} evaluations"


def _rounded_down(number: int) -> int:
    """Round down to two significant digits."""
    unit = 10 ** max(len(str(number)) - 2, 0)
    return int(number // unit * unit)
