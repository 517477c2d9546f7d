"""Text on the page about a run, an elite and the lanes. All names are escaped."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from memes.archive import Archive, is_column
from memes.context import Kind
from memes.errors import RunError, UsageError, in_a_line
from memes.estimates import Correction
from memes.presets import display_name
from memes.resets import Reason
from memes.store.sanitize import markdown, printable
from memes.view import elites
from memes.view.drawings import Drawing
from memes.view.follow import Snapshot

CLIMBS = {Kind.EXPLOIT: "fitness", Kind.EXPLORE: "novelty", Kind.VARIATION: "variation"}
MOST_LANES = 256
SPACE = "\N{NO-BREAK SPACE}" * 2  # space between columns, because viser adds none


def of_run(now: Snapshot) -> str:
    """Describe a run and its progress."""
    if now.header is None:
        folder = markdown(printable(str(now.folder)))
        return f"{_trouble(now)}waiting for a run in {folder} to begin"
    config, _, outcome = now.header
    names = config.task_label, display_name(config.algorithm_label, config.options)
    task, algorithm = (markdown(printable(each)) for each in names)
    said = "running"
    if outcome is not None:
        said = "stopped early" if outcome.stopped else "finished"
    scores = ""
    if now.generations:
        last = {name: column[-1] for name, column in now.metrics.items()}
        scores = (
            f"\n\nQD-score **{last['qd_score']:.1f}**, coverage **{last['coverage']:.1%}**, "
            f"max fitness **{last['max_fitness']:.4g}**"
        )
    of = f" of {config.generations}" if config.generations else ""
    return (
        f"{_trouble(now)}**{algorithm}** on **{task}**, seed {config.seed}: "
        f"generation {now.generations}{of}, {said}{scores}"
    )


def _trouble(now: Snapshot) -> str:
    return f"*{markdown(printable(now.trouble))}*\n\n" if now.trouble else ""


class EliteFacts(NamedTuple):
    """Information about one elite, for display on the page.

    Attributes:
        archive: Archive that contains the elite.
        cell: Cell of the elite in the archive.
        correction: Result of re-evaluation; None if there is none.
        holds: Cell of the elite after re-evaluation; None if it does not survive.
        drawing: Result of simulating the elite for the page; None if it was not simulated.
        shown: Generation of the elite that the page currently shows in this cell.
    """

    archive: Archive
    cell: int
    correction: Correction | None = None
    holds: int | None = None
    drawing: Drawing | None = None
    shown: int | None = None


def of_elite(elite: EliteFacts, names: Sequence[str]) -> str:
    """Return a table of the stored, corrected and current evaluations of an elite.

    An elite that does not survive re-evaluation is marked as lost.
    """
    archive, cell, correction, holds, drawing, shown = elite
    extras = [name for name, values in archive.extras.items() if is_column(values)]
    columns: dict[str, list[float] | None] = {"stored": _evaluation(archive, cell, extras)}
    if correction is not None:
        held = None if holds is None else _evaluation(correction.archive, holds, extras)
        columns["corrected"] = held
    if drawing is not None:
        columns["now"] = [drawing.fitness, *drawing.feature]
    generation = int(archive.generation[cell])
    lines = [
        f"cell **{elites.name(archive.cells, cell)}**, generation {generation + 1}, "
        f"lane {int(archive.lane[cell])}\n",
    ]
    if holds not in (None, cell):
        lines.append(f"after re-evaluation in cell **{elites.name(archive.cells, holds)}**\n")
    if shown not in (None, generation):
        lines.append(f"*the colour shows the elite of generation {shown + 1}, which is not saved*\n")
    lines += [
        f"| | {' | '.join(f'{SPACE}{each}' for each in columns)} |",
        f"|{'---|' * (1 + len(columns))}",
    ]
    for i, name in enumerate(["fitness", *names, *extras]):
        values = (
            "lost" if each is None else f"{each[i]:.4g}" if i < len(each) else ""
            for each in columns.values()
        )
        lines.append(f"| {markdown(name)} | {' | '.join(f'{SPACE}{each}' for each in values)} |")
    return "\n".join(lines)


def _evaluation(archive: Archive, cell: int, extras: Sequence[str]) -> list[float]:
    """Return the fitness, the features and the named extras of an elite."""
    known = (archive.extras[name][cell] for name in extras if name in archive.extras)
    return [float(each) for each in (archive.fitness[cell], *archive.feature[cell], *known)]


def command(folder: Path, cell: int, seed: int) -> str:
    """Return the command that replays an elite."""
    again = f" --seed {seed}" if seed else ""
    return f"memes replay {shlex.quote(printable(str(folder)))} --cell {cell}{again}"


def of_lanes(lanes: Mapping[str, np.ndarray]) -> str:
    """Return a table with the state of the lanes after the last recorded generation."""
    if not lanes or not len(lanes["generation"]):
        return "The lanes appear after the first checkpoint."
    resets = (lanes["reset"] != Reason.NONE).sum(axis=0)
    if not len(resets):
        return "This algorithm has no lanes that continue from generation to generation."
    last = {name: column[-1] for name, column in lanes.items()}
    lines = ["| lane | objective | age | stale | resets | fitness |", "|---|---|---|---|---|---|"]
    for i in range(min(len(resets), MOST_LANES)):
        kind = int(last["kind"][i])
        climbs = CLIMBS[Kind(kind)] if kind in list(Kind) else "?"
        lane, stale = (last[name][i] if name in last else "" for name in ("lane", "stale"))
        fitness = f"{float(last['fitness'][i]):.4g}" if "fitness" in last else ""
        lines.append(f"| {lane} | {climbs} | {last['age'][i]} | {stale} | {resets[i]} | {fitness} |")
    return f"after generation {int(last['generation'])}\n\n" + "\n".join(lines)


def of_error(error: Exception) -> str:
    """Format an error for the page."""
    sentence = str(error) if isinstance(error, (UsageError, RunError)) else in_a_line(error)
    return markdown(printable(sentence))
