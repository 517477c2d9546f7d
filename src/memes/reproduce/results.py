"""What comes out of a sweep: a comparison for each experiment, and the verdicts on the claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from memes.analysis.groups import group
from memes.analysis.tables import all_tables
from memes.commands.compare import write as write_comparison
from memes.reproduce.checks import Verdict
from memes.reproduce.claims import Judged, judge
from memes.reproduce.experiments import EXPERIMENTS
from memes.store.summary import Summary

STYLES = {
    Verdict.REPRODUCED: "green",
    Verdict.NOT_REPRODUCED: "red",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.NOT_TESTED: "dim",
}
READING = """\
*Above* means a higher median over the seeds and a rank-sum p-value below 0.05, corrected for all
comparisons of the claim on the task. *On par* means that the 95% interval of the relative difference of
the medians lies within 5%, and *at least* that it does not reach below -5%. A claim is *not reproduced*
where one of its parts is refuted: significantly the other way round, or an interval wholly outside. What
shows neither is *inconclusive*, and what has no runs, or nothing to be tested, is *not tested*. Numbers
are medians with 95% bootstrap intervals; scores are corrected on uncertain tasks; p-values are after
correction; seeds that ran as one batch have one time."""
SMALLER = """\
These runs are smaller than the paper's in every way, so the verdicts are of smaller problems: they show
that everything works, and where a claim needs the paper's scale."""


def write(
    experiments: Sequence[str], tasks: Sequence[str], summaries: Sequence[Summary], out: Path
) -> list[Judged]:
    """Write a comparison for each experiment, and the claims, into a folder; returns the verdicts."""
    for name in experiments:
        labels = EXPERIMENTS[name].labels
        runs = [run for run in summaries if run.label in labels and run.task in EXPERIMENTS[name].tasks]
        if runs:
            groups = group(runs)
            write_comparison(groups, all_tables(groups), out / name)
    judged = judge(summaries, tasks)
    out.mkdir(parents=True, exist_ok=True)
    (out / "claims.md").write_text(page(judged, summaries))
    return judged


def page(judged: Sequence[Judged], summaries: Sequence[Summary]) -> str:
    """The claims, the verdicts and the numbers behind them, as Markdown."""
    sections = [
        "# The paper's claims",
        READING,
        *([SMALLER] if any(run.scale == "laptop" for run in summaries) else []),
        *_made_of(summaries),
        "| | claim | task | verdict |\n|---|---|---|---|\n"
        + "\n".join(
            f"| {each.claim.name} | {each.claim.sentence} | {each.task} | {each.outcome.verdict} |"
            for each in judged
        ),
        "## The numbers",
    ]
    for each in judged:
        lines = "\n".join(f"- {line}" for line in each.outcome.numbers)
        title = f"### {each.claim.name}, {each.task}: {each.outcome.verdict}"
        sections += [title, each.claim.sentence, lines]
    return "\n\n".join(sections) + "\n"


def _made_of(summaries: Sequence[Summary]) -> list[str]:
    """Which runs the verdicts are of, in a line for each task."""
    lines = []
    for task in dict.fromkeys(run.task for run in summaries):
        runs = [run for run in summaries if run.task == task]
        facts: dict[str, list[object]] = {
            "scale": [run.scale for run in runs],
            "generations": [run.generations for run in runs],
            "device": [run.about.get("device") for run in runs],
            "commit": [str(run.about.get("commit"))[:7] for run in runs],
        }
        said = [f"{name} {', '.join(map(str, dict.fromkeys(v)))}" for name, v in facts.items()]
        lines.append(f"- {task}: {len(runs)} runs; {'; '.join(said)}")
    return ["\n".join(lines)] if lines else []


def show(judged: Sequence[Judged], console: Console) -> None:
    """Print the verdicts, and how many there are of each."""
    table = Table(title="The paper's claims", title_justify="left", title_style="bold")
    for column in ("", "task", "verdict", "claim"):
        table.add_column(column)
    for each in judged:
        verdict = each.outcome.verdict
        table.add_row(
            each.claim.name, each.task, f"[{STYLES[verdict]}]{verdict}[/]", each.claim.sentence
        )
    console.print(table)
    counts = Counter(each.outcome.verdict for each in judged)
    console.print(", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict]))
