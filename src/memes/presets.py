"""Published algorithms, each a short composition of the parts, with the paper's hyper-parameters."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, Literal, NamedTuple

import optax

from memes import objectives, resets
from memes.algorithm import Algorithm, compose
from memes.cells import Cells
from memes.emitters import es, isoline, parallel
from memes.errors import require
from memes.history import History, elites, everything, fifo, nothing
from memes.strategies import Strategy, openai_es
from memes.task import Task


def _recorded(build: Callable[..., Algorithm]) -> Callable[..., Algorithm]:
    """Let the algorithm that a preset builds carry its name and its hyper-parameters."""
    signature = inspect.signature(build)

    @wraps(build)
    def build_and_record(*arguments: Any, **keywords: Any) -> Algorithm:
        bound = signature.bind(*arguments, **keywords)
        bound.apply_defaults()
        options = {k: v for k, v in bound.arguments.items() if k not in ("task", "cells")}
        name = build.__name__.replace("_", "-")
        return build(*arguments, **keywords)._replace(name=name, options=options)

    return build_and_record


@_recorded
def memes(
    task: Task,
    cells: Cells | None = None,
    *,
    lanes: int = 32,
    proportion_explore: float = 0.5,
    explore: Literal["fifo", "everything", "elites", "ga"] = "fifo",
    samples: int = 512,
    sigma: float = 0.02,
    learning_rate: float = 0.01,
    l2: float = 0.0,
    stale_budget: int = 32,
    reset_every: int | None = None,
    offer_samples: bool = False,
    neighbours: int = 10,
    fifo_size: int = 50_000,
    generations: int = 2000,
) -> Algorithm:
    """MEMES: lanes of evolution strategies that climb fitness or novelty, reset when stale.

    Args:
        task: What to optimise.
        cells: The archive's cells; None is the task's grid.
        lanes: Evolution strategies at once, exploit and explore together.
        proportion_explore: Share of the lanes that explore.
        explore: How they explore: by novelty with respect to the last offspring (fifo), to all of them
            (everything) or to the elites (elites), or by random variation of elites (ga).
        samples: Samples of each lane in a generation, in mirrored pairs.
        sigma: Standard deviation of the samples.
        learning_rate: Of Adam, which moves each lane's mean.
        l2: Pull of the means towards zero.
        stale_budget: A lane is reset after more than this many generations in a row without progress.
        reset_every: Reset lanes every so many generations instead.
        offer_samples: Offer the samples to the archive too, not only the means.
        neighbours: Nearest features that make up the novelty score.
        fifo_size: Features that the fifo history remembers.
        generations: Length of the run, for which the history `everything` makes room.
    """
    require(lanes >= 1, f"lanes must be at least 1, got {lanes}")
    require(
        0 <= proportion_explore <= 1,
        f"proportion_explore must lie in [0, 1], got {proportion_explore}",
    )
    require(stale_budget >= 0, f"stale_budget must be at least 0, got {stale_budget}")
    require(
        reset_every is None or reset_every >= 1, f"reset_every must be at least 1, got {reset_every}"
    )
    require(fifo_size >= 1, f"fifo_size must be at least 1, got {fifo_size}")
    n_explore = round(lanes * proportion_explore)
    n_exploit = lanes - n_explore
    strategy = _strategy(samples, sigma, learning_rate, l2)
    reset = resets.stagnation(stale_budget) if reset_every is None else resets.every(reset_every)
    history: dict[str, Callable[[], History]] = {
        "fifo": lambda: fifo(fifo_size),
        "everything": lambda: everything(lanes * generations),
        "elites": elites,
        "ga": nothing,
    }
    require(explore in history, f"explore must be one of {', '.join(history)}, got '{explore}'")

    parts = []
    if n_exploit:
        parts += [es(objectives.fitness(), lanes=n_exploit, strategy=strategy, reset=reset)]
    if n_explore and explore == "ga":
        parts += [isoline(n_explore)]
    elif n_explore:
        novelty = objectives.novelty(neighbours)
        parts += [es(novelty, lanes=n_explore, strategy=strategy, reset=reset)]
    return compose(
        task,
        parallel(*parts),
        cells=cells,
        history=history[explore](),
        offer_samples=offer_samples,
    )


@_recorded
def memes_sequential(
    task: Task,
    cells: Cells | None = None,
    *,
    lanes: int = 32,
    every: int = 10,
    samples: int = 512,
    sigma: float = 0.02,
    learning_rate: float = 0.01,
    l2: float = 0.0,
    neighbours: int = 10,
    fifo_size: int = 50_000,
) -> Algorithm:
    """MEMES whose lanes all explore, then all exploit, and are reset at each change.

    Args:
        task: What to optimise.
        cells: The archive's cells; None is the task's grid.
        lanes: Evolution strategies at once.
        every: Generations between changes.
        samples: Samples of each lane in a generation, in mirrored pairs.
        sigma: Standard deviation of the samples.
        learning_rate: Of Adam, which moves each lane's mean.
        l2: Pull of the means towards zero.
        neighbours: Nearest features that make up the novelty score.
        fifo_size: Features that the fifo history remembers.
    """
    require(fifo_size >= 1, f"fifo_size must be at least 1, got {fifo_size}")
    objective = objectives.alternate(objectives.novelty(neighbours), objectives.fitness(), every)
    emitter = es(
        objective,
        lanes=lanes,
        strategy=_strategy(samples, sigma, learning_rate, l2),
        reset=resets.every(every),
    )
    return compose(task, emitter, cells=cells, history=fifo(fifo_size))


@_recorded
def me(
    task: Task,
    cells: Cells | None = None,
    *,
    batch: int = 16_384,
    iso: float = 0.01,
    line: float = 0.1,
) -> Algorithm:
    """MAP-Elites: random variation of elites, as many a generation as MEMES has samples.

    Args:
        task: What to optimise.
        cells: The archive's cells; None is the task's grid.
        batch: Offspring in a generation.
        iso: Standard deviation of the isotropic part of the variation.
        line: Standard deviation of the part along the line between two parents.
    """
    return compose(task, isoline(batch, iso=iso, line=line), cells=cells)


def _strategy(samples: int, sigma: float, learning_rate: float, l2: float) -> Strategy:
    require(
        0 < learning_rate < math.inf,
        f"learning_rate must be positive and finite, got {learning_rate}",
    )
    return openai_es(samples=samples, sigma=sigma, optimiser=optax.adam(learning_rate), l2=l2)


class Preset(NamedTuple):
    """A named algorithm: `build(task, cells, **hyper_parameters)`, and what it is in one line."""

    build: Callable[..., Algorithm]
    summary: str


PRESETS: dict[str, Preset] = {
    "memes": Preset(memes, "evolution strategies for fitness and for novelty"),
    "memes-all": Preset(
        partial(memes, offer_samples=True), "MEMES that offers its samples to the archive too"
    ),
    "memes-sequential": Preset(
        memes_sequential, "MEMES whose lanes all explore, then all exploit, in turn"
    ),
    "memes-fixed-reset": Preset(
        partial(memes, reset_every=10), "MEMES whose lanes are reset every 10 generations"
    ),
    "memes-everything": Preset(
        partial(memes, explore="everything"), "MEMES that measures novelty against all offspring"
    ),
    "memes-elites": Preset(
        partial(memes, explore="elites"), "MEMES that measures novelty against the elites"
    ),
    "memes-ga": Preset(
        partial(memes, explore="ga"), "MEMES that explores by random variation of elites"
    ),
    "me": Preset(me, "MAP-Elites, 16 384 offspring a generation"),
    "me-128": Preset(partial(me, batch=128), "MAP-Elites, 128 offspring a generation"),
}
