"""The outcome of a sweep: a comparison for each experiment, and the verdicts on the claims."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from memes.analysis import report
from memes.analysis.groups import group
from memes.analysis.statistics import interval
from memes.escapes import markdown
from memes.reproduce.checks import Verdict
from memes.reproduce.claims import Judged, judge
from memes.reproduce.experiments import EXPERIMENTS, MINUTES
from memes.store.files import save_text
from memes.store.summary import Summary

STYLES = {
    Verdict.REPRODUCED: "green",
    Verdict.NOT_REPRODUCED: "red",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.NOT_TESTED: "dim",
}
READING = """\
*Above* means a higher median over the seeds and a rank-sum p-value below 0.05. *On par* means that the
95% interval of the relative difference of the medians lies within 5%, and *at least* that it does not
reach below -5%; fewer than five seeds have no such interval. A claim is *reproduced* where each of its
parts is shown by its own p-value, uncorrected, since all of them must be (an intersection-union test).
It is *not reproduced* where one part is refuted: significantly the other way round, after Bonferroni
correction for all comparisons of the claim on the task. What shows neither is *inconclusive*, and what
has no runs, or nothing to be tested, is *not tested*. *Seeds* are the fewest that any part is of; the
paper has 10, and 5 in C10 to C12 and C19. Numbers are medians with 95% bootstrap intervals; scores are
corrected on uncertain tasks; seeds that ran as one batch have one time."""
SMALLER = """\
These runs are smaller than the paper's in every way, so the verdicts are of smaller problems: they show
that everything works, and where a claim needs the paper's scale."""


def write(
    experiments: Sequence[str], tasks: Sequence[str], summaries: Sequence[Summary], out: Path
) -> list[Judged]:
    """Write the experiments' comparisons, on tasks with something to compare, and the claims.

    Returns the verdicts.
    """
    for name in experiments:
        labels = EXPERIMENTS[name].labels
        runs = [run for run in summaries if run.label in labels and run.task in EXPERIMENTS[name].tasks]
        groups = {task: of_task for task, of_task in group(runs).items() if len(of_task) > 1}
        if groups:
            report.write(report.compare(groups), out / name)
    judged = judge(summaries, tasks)
    out.mkdir(parents=True, exist_ok=True)
    save_text(out / "claims.md", page(judged, summaries).rstrip("\n"))
    return judged


def page(judged: Sequence[Judged], summaries: Sequence[Summary]) -> str:
    """The claims, the verdicts and the numbers behind them, as Markdown."""
    sections = [
        "# The paper's claims",
        READING,
        *([SMALLER] if any(run.scale == "laptop" for run in summaries) else []),
        *_made_of(summaries),
        "| | claim | task | verdict | seeds |\n|---|---|---|---|---|\n"
        + "\n".join(
            f"| {each.name} | {each.claim.sentence} | {each.task} | {each.outcome.verdict} | "
            f"{each.outcome.seeds or '-'} |"
            for each in judged
        ),
        *_run_times(summaries),
        "## The numbers",
    ]
    for each in judged:
        lines = "\n".join(f"- {line}" for line in each.outcome.numbers)
        title = f"### {each.name}, {each.task}: {each.outcome.verdict}"
        sections += [title, each.claim.sentence, lines]
    return "\n\n".join(sections) + "\n"


def _made_of(summaries: Sequence[Summary]) -> list[str]:
    """Say in a line for each task which runs the verdicts are of."""
    lines = []
    for task in dict.fromkeys(run.task for run in summaries):
        runs = [run for run in summaries if run.task == task]
        facts: dict[str, list[object]] = {
            "scale": [run.scale for run in runs],
            "generations": [run.generations for run in runs],
            "evaluations of an elite to correct it": [
                f"{run.corrections['samples'][-1]:g}" for run in runs if "samples" in run.corrections
            ],
            "device": [run.about.get("device") for run in runs],
            "commit": [run.about["commit"][:7] for run in runs if run.about.get("commit")],
        }
        said = [f"{name} {', '.join(map(str, dict.fromkeys(v)))}" for name, v in facts.items() if v]
        lines.append(markdown(f"- {task}: {len(runs)} runs; {'; '.join(said)}"))
    return ["\n".join(lines)] if lines else []


def _run_times(summaries: Sequence[Summary]) -> list[str]:
    """The paper's table of run times, beside what runs at paper scale took here."""
    took: dict[tuple[str, str], list[float]] = defaultdict(list)
    for run in summaries:
        seconds = run.about.get("seconds_per_generation")
        if run.scale == "paper" and run.task in MINUTES.get(run.label, {}) and seconds is not None:
            took[run.label, run.task].append(seconds * run.generations / 60)
    if not took:
        return []
    tasks = list(MINUTES["memes"])
    rows = [["", *tasks], ["---"] * (1 + len(tasks))]
    for label, paper in MINUTES.items():
        ours = {task: report.number(interval(took[label, task]).value) for task in tasks}
        rows.append([label, *(f"{ours[task]} ({paper.get(task, '-')})" for task in tasks)])
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    title = "Minutes that a run takes without compilation, the median here (and in the paper):"
    return [title, table]


def show(judged: Sequence[Judged], console: Console) -> None:
    """Print the verdicts, and how many there are of each."""
    table = Table(title="The paper's claims", title_justify="left", title_style="bold")
    for column in ("", "task", "verdict", "claim"):
        table.add_column(column)
    for each in judged:
        verdict = each.outcome.verdict
        table.add_row(each.name, each.task, f"[{STYLES[verdict]}]{verdict}[/]", each.claim.sentence)
    console.print(table)
    counts = Counter(each.outcome.verdict for each in judged)
    console.print(", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict]))
