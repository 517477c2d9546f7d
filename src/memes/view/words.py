"""The words of the page: about a run, about an elite, about the lanes. All names in them are escaped."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from memes.archive import Archive
from memes.context import Kind
from memes.correction import Correction
from memes.errors import RunError, UsageError, in_a_line
from memes.escapes import markdown, printable
from memes.resets import Reason
from memes.view import elites
from memes.view.drawings import Drawing
from memes.view.follow import Snapshot

CLIMBS = {Kind.EXPLOIT: "fitness", Kind.EXPLORE: "novelty", Kind.VARIATION: "variation"}
MOST_LANES = 256


def of_run(now: Snapshot) -> str:
    """Say what a run is and how far it has come."""
    config = now.config
    if not config:
        return f"{_trouble(now)}waiting for a run in `{printable(str(now.folder))}` to begin"
    names = (Path(str(config["task"])).name, config["algorithm"])
    task, algorithm = (markdown(printable(str(each))) for each in names)
    total, said = config.get("generations"), "running"
    if "finished" in config:
        said = "stopped early" if config.get("stopped") else "over"
    scores = ""
    if now.generations:
        last = {name: column[-1] for name, column in now.metrics.items()}
        scores = (
            f"\n\nQD-score **{last['qd_score']:.1f}**, coverage **{last['coverage']:.1%}**, "
            f"max fitness **{last['max_fitness']:.4g}**"
        )
    of = f" of {int(total)}" if isinstance(total, int) else ""
    return (
        f"{_trouble(now)}**{algorithm}** on **{task}**, seed {config['seed']}: "
        f"generation {now.generations}{of}, {said}{scores}"
    )


def _trouble(now: Snapshot) -> str:
    return f"*{markdown(printable(now.trouble))}*\n\n" if now.trouble else ""


def of_elite(
    archive: Archive,
    cell: int,
    correction: Correction | None,
    drawing: Drawing | None,
    names: Sequence[str],
) -> str:
    """Compare what is stored of an elite, what re-evaluation made of it, and what was seen now.

    An elite that holds no cell after re-evaluation is lost.
    """
    columns: dict[str, tuple[float, np.ndarray] | None] = {
        "stored": (float(archive.fitness[cell]), np.asarray(archive.feature[cell])),
    }
    if correction is not None:
        columns["corrected"] = corrected(archive, cell, correction)
    if drawing is not None:
        columns["now"] = (drawing.fitness, drawing.feature)
    lines = [
        f"cell **{elites.name(archive.cells, cell)}**, generation {int(archive.generation[cell]) + 1}, "
        f"lane {int(archive.lane[cell])}\n",
        f"| | {' | '.join(columns)} |",
        f"|{'---|' * (1 + len(columns))}",
    ]
    for i, name in enumerate(["fitness", *names]):
        values = (
            "lost" if each is None else f"{[each[0], *each[1]][i]:.4g}" for each in columns.values()
        )
        lines.append(f"| {markdown(name)} | {' | '.join(values)} |")
    return "\n".join(lines)


def corrected(archive: Archive, cell: int, correction: Correction) -> tuple[float, np.ndarray] | None:
    """Find the corrected fitness and feature of an elite; None if it holds no cell any more."""
    found = correction.archive
    same = (np.asarray(found.genotypes) == np.asarray(archive.genotypes[cell])).all(axis=1)
    places = np.flatnonzero(same & np.asarray(found.occupied))
    if not places.size:
        return None
    return float(found.fitness[places[0]]), np.asarray(found.feature[places[0]])


def command(folder: Path, cell: int, seed: int) -> str:
    """Write the command that replays an elite."""
    again = f" --seed {seed}" if seed else ""
    return f"memes replay {shlex.quote(printable(str(folder)))} --cell {cell}{again}"


def of_lanes(lanes: Mapping[str, np.ndarray]) -> str:
    """Tabulate the lanes after the last generation that is known."""
    if not lanes or not len(lanes["generation"]):
        return "The lanes are known after the first checkpoint."
    resets = (lanes["reset"] != Reason.NONE).sum(axis=0)
    if not len(resets):
        return "This algorithm has no lanes that go on from generation to generation."
    last = {name: column[-1] for name, column in lanes.items()}
    lines = ["| lane | climbs | age | stale | resets | fitness |", "|---|---|---|---|---|---|"]
    for i in range(min(len(resets), MOST_LANES)):
        kind = int(last["kind"][i])
        climbs = CLIMBS[Kind(kind)] if kind in list(Kind) else "?"
        lane, stale = (last[name][i] if name in last else "" for name in ("lane", "stale"))
        fitness = f"{float(last['fitness'][i]):.4g}" if "fitness" in last else ""
        lines.append(f"| {lane} | {climbs} | {last['age'][i]} | {stale} | {resets[i]} | {fitness} |")
    return f"after generation {int(last['generation'])}\n\n" + "\n".join(lines)


def of_error(error: Exception) -> str:
    """Write an error as text for the page."""
    sentence = str(error) if isinstance(error, (UsageError, RunError)) else in_a_line(error)
    return markdown(printable(sentence))
