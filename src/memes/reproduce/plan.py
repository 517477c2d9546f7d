"""The runs that experiments need, and those of them that there are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import NamedTuple

from memes.reproduce.experiments import CHANGES, EXPERIMENTS, MOST_SEEDS, VARIANTS
from memes.store.folder import plain
from memes.store.summary import Summary
from memes.words.options import flag_words
from memes.words.settings import Parsed, parse


class Item(NamedTuple):
    """A variant on a task, the seeds it is run with, and the command that would run it."""

    task: str
    label: str
    seeds: tuple[int, ...]
    parsed: Parsed

    @property
    def generations(self) -> int:
        """For how long."""
        return int(self.parsed.running["generations"])

    @property
    def name(self) -> str:
        """The name of its files: runs of other lengths are other runs."""
        return f"{self.label}-{self.generations}"


def plan(
    experiments: Sequence[str],
    tasks: Sequence[str],
    scale: str,
    *,
    labels: Sequence[str] = (),
    seeds: int | None = None,
    first_seed: int = 0,
    generations: int | None = None,
) -> list[Item]:
    """List the runs that the experiments need on the tasks, each of them once.

    Without `labels` they are all that the experiments run, without `seeds` as many as the paper has, or
    fewer if the scale says so, and without `generations` as long as the scale says.
    """
    most: dict[tuple[str, str], int] = {}
    for experiment in (EXPERIMENTS[name] for name in experiments):
        count = seeds or min(experiment.seeds, MOST_SEEDS[scale])
        for task, label in product(tasks, experiment.labels):
            applies = task in experiment.tasks and task in VARIANTS[label].tasks
            if applies and (not labels or label in labels):
                most[task, label] = max(count, most.get((task, label), 0))
    return [
        Item(
            task,
            label,
            tuple(range(first_seed, first_seed + n)),
            _command(task, label, scale, generations),
        )
        for (task, label), n in most.items()
    ]


def _command(task: str, label: str, scale: str, generations: int | None) -> Parsed:
    variant = VARIANTS[label]
    understood = partial(parse, program="memes reproduce", changes=CHANGES[scale].get(task))
    asked = generations or (variant.generations.get(task) if scale == "paper" else None)
    options = variant.options if asked is None else {**variant.options, "generations": asked}
    words = [task, "--algorithm", variant.algorithm, "--scale", scale]
    for option, value in options.items():
        words += flag_words(option, value)
    parsed = understood(words)
    for option, factor in variant.times.items():
        words += flag_words(option, int(factor * parsed.algorithm_options[option]))
    return understood(words) if variant.times else parsed


def is_of(summary: Summary, item: Item) -> bool:
    """Is a run what an item asks for, whatever its seed?"""
    asked = (item.task, item.label, item.parsed.choice.scale, item.generations)
    if (summary.task, summary.label, summary.scale, summary.generations) != asked:
        return False
    options = json.loads(json.dumps(item.parsed.options, default=plain))  # as summaries have them
    return all(options.get(name, value) == value for name, value in summary.options.items())


def existing(items: Sequence[Item], summaries: Sequence[Summary]) -> list[Summary]:
    """Those of the summaries that the items ask for, each seed once, in the order of the items."""
    found = []
    for item in items:
        by_seed = {run.seed: run for run in reversed(summaries) if is_of(run, item)}
        found += [by_seed[seed] for seed in item.seeds if seed in by_seed]
    return found
