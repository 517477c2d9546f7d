"""HTML that describes a run or an archive."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from html import escape

import numpy as np

from memes.runner.progress import duration
from memes.store.folder import Run


def numbers(run: Run) -> dict[str, str]:
    """Return the main facts about a run as strings, with their names as keys."""
    elites, cells = int(run.archive.occupied.sum()), run.archive.cells.count
    found = {"elites": f"{elites:,} of {cells:,} cells ({elites / cells:.1%})"}
    if elites:
        found["best fitness"] = f"{np.asarray(run.archive.fitness).max():.4g}"
    found["genotypes"] = f"{run.archive.genotypes.shape[1]:,} numbers each"
    if run.generations:
        last = {name: float(column[-1]) for name, column in run.metrics.items()}
        found |= {
            "QD-score": f"{last['qd_score']:,.1f}",
            "generations": f"{run.generations:,}",
            "evaluations": f"{last['evaluations']:,.0f} in {duration(last['seconds'])}",
        }
    if run.corrected:
        row = {name: float(column[-1]) for name, column in run.corrected.items()}
        found["corrected QD-score"] = f"{row.get('qd_score', np.nan):,.1f}"
        found["corrected coverage"] = f"{row.get('coverage', np.nan):.1%}"
    if run.folder is not None:
        found["folder"] = str(run.folder)
    return found


def html(title: str, rows: Mapping[str, str], png: bytes) -> str:
    """Return HTML with a title, and a table next to a picture. All strings are escaped."""
    lines = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th>"
        f"<td style='text-align:left'>{escape(words)}</td></tr>"
        for name, words in rows.items()
    )
    return (
        "<div style='display:flex;flex-wrap:wrap;gap:1.5em;align-items:center'>"
        f"<table><caption style='text-align:left'><b>{escape(title)}</b></caption>{lines}</table>"
        f"<img alt='{escape(title)}' src='data:image/png;base64,{b64encode(png).decode()}'></div>"
    )
