"""Compare the speed of this library with the speed of other implementations, in one process.

    python benchmarks/speed.py --list                        list the cases
    python benchmarks/speed.py                               measure all cases
    python benchmarks/speed.py --cases novelty me --json out.json

Each implementation is called once to compile its program. Then the implementations take turns. Every
call waits for the device. The table shows the median and range of the call times after compilation, and
the median ratio to the time of the first implementation. Libraries that are not installed are skipped
(`pip install qdax ribs`).
"""

import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro
from cases import CASES, Round, Scale
from peers import Contestant
from timing import about, interleaved

PACKAGES = ("jax", "jaxlib", "numpy", "evosax", "qdax", "ribs")


@dataclasses.dataclass
class Settings:
    """Settings of the measurements."""

    cases: tuple[str, ...] = tuple(CASES)
    list: bool = False
    """Only list the cases."""
    scale: Scale | None = None
    """Size of the cases. By default, `paper` on a GPU and `laptop` on a CPU."""
    repeats: int = 5
    """Number of measured calls per implementation."""
    json: Path | None = None
    """File to which the results, the device and the versions are written."""


def measured(case: str, compared: Round, repeats: int) -> Iterator[dict[str, Any]]:
    """Measure the implementations of one case, and yield one row of results per implementation."""
    runnable = {n: c for n, c in compared.contestants.items() if isinstance(c, Contestant)}
    timings = interleaved({name: c.call for name, c in runnable.items()}, repeats)
    for name, contestant in compared.contestants.items():
        row = {"case": case, "title": compared.title, "name": name}
        if isinstance(contestant, str):
            yield row | {"skipped": contestant}
            continue
        timing, reference = timings[name], next(iter(timings.values()))
        yield row | {
            "unit": compared.unit,
            "seconds": (timing.seconds / compared.amount).tolist(),
            "compile_seconds": timing.first - timing.median,
            "relative": float(np.median(timing.seconds / reference.seconds)),
            "outcome": contestant.outcome(timing.result),
        }


def line(row: dict[str, Any]) -> str:
    """Format a row of the table."""
    if "skipped" in row:
        return f"| {row['name']} | skipped: {row['skipped']} | | | |"
    size, unit = (1e3, "ms") if np.median(row["seconds"]) >= 1e-4 else (1e6, "µs")
    middle, low, high = (size * f(row["seconds"]) for f in (np.median, np.min, np.max))
    outcome = ", ".join(f"{name} {value:.4g}" for name, value in row["outcome"].items())
    return (
        f"| {row['name']} | {middle:.4g} {unit} [{low:.4g}, {high:.4g}] | {row['relative']:.2f} "
        f"| {row['compile_seconds']:.1f} s | {outcome} |"
    )


def main(s: Settings) -> None:
    if s.list:
        for name, case in CASES.items():
            print(f"{name:10} {case.__doc__}")
        return
    unknown = [name for name in s.cases if name not in CASES]
    if unknown:
        sys.exit(f"--cases: unknown case '{unknown[0]}'; choose from {', '.join(CASES)}")
    scale = s.scale or ("laptop" if jax.default_backend() == "cpu" else "paper")
    report = {**about(*PACKAGES), "scale": scale, "repeats": s.repeats, "rows": []}
    print(", ".join(f"{key} {value}" for key, value in report.items() if key != "rows"))
    for case in s.cases:
        for compared in CASES[case](scale, s.repeats):
            print(f"\n**{case}**: {compared.title}. {compared.remark}\n")
            print(f"| | time per {compared.unit} | relative | compilation | outcome |")
            print("|---|---|---|---|---|", flush=True)
            for row in measured(case, compared, s.repeats):
                report["rows"].append(row)
                print(line(row), flush=True)
            if s.json:  # save after each round, so that no results are lost if the run is interrupted
                s.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
