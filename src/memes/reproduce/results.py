"""The results of a sweep: a comparison for each experiment, and verdicts on the claims."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from memes.analysis import report
from memes.analysis.groups import group
from memes.analysis.statistics import holm, interval
from memes.reproduce.checks import Verdict
from memes.reproduce.claims import Judged, judge
from memes.reproduce.experiments import EXPERIMENTS, MINUTES
from memes.reproduce.turns import Times
from memes.store.files import save_text
from memes.store.sanitize import markdown
from memes.store.summary import Summary

STYLES = {
    Verdict.REPRODUCED: "green",
    Verdict.NOT_REPRODUCED: "red",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.NOT_TESTED: "dim",
    Verdict.NOT_APPLICABLE: "dim",
}
UNKNOWN = "unknown"  # text for summaries that do not record a commit
READING = """\
Numbers are medians with 95% bootstrap intervals. Scores on uncertain tasks are corrected by medians.
Times are measured in turns. Claims use these relations:

- *Above*: the median over the seeds is higher, and the p-value of a rank-sum test is below 0.05.
- *On par*: the 95% interval of the relative difference of the medians lies within 5%.
- *At least*: this 95% interval does not extend below -5%. Intervals require at least five seeds.

A claim has one of these verdicts on each task:

- *Reproduced*: each part of the claim is shown by its own p-value. This p-value is not corrected,
  because the claim requires all parts (an intersection-union test).
- *Not reproduced*: one part is refuted, because the opposite is significant. This p-value has a
  Bonferroni correction for all parts of the claim on the task that the runs can test.
- *Inconclusive*: the claim is neither shown nor refuted, for example because an algorithm has no runs.
- *Not tested*: the claim has no runs.
- *Not applicable*: the claim does not concern the task.

The other columns of the table are:

- *seeds*: the smallest number of seeds of any part. The paper has 10 seeds, and 5 in C10 to C12 and C19.
- *p*: the p-value of the decisive part. This is the largest p-value of the parts that a p-value alone
  shows, or the smallest p-value of the refuted parts. Claims that only intervals show have no p-value.
- *of the claim*: *p* after Bonferroni correction for the parts of the claim (Holm correction in B3).
- *of all claims*: *p* after Holm correction for all claims of the table.
- *commits*: the commits of the runs of a verdict. "unknown" marks runs that do not record a commit."""
SMALLER = """\
These runs are smaller than the paper's runs in every way, so the verdicts apply to smaller problems.
The runs show that everything works, and which claims need the paper's scale."""


def write(
    experiments: Sequence[str],
    tasks: Sequence[str],
    summaries: Sequence[Summary],
    out: Path,
    times: Sequence[Times] = (),
) -> list[Judged]:
    """Write the comparisons of experiments and the page of claims.

    The comparison of an experiment includes only tasks with runs of at least two algorithms.

    Args:
        experiments: Names of the experiments.
        tasks: Names of the tasks.
        summaries: The summaries of the runs.
        out: Folder for the results.
        times: Times per generation of algorithms that took turns on one device.

    Returns:
        The verdicts.
    """
    for name in (name for name in experiments if EXPERIMENTS[name].seeds):
        labels = EXPERIMENTS[name].labels
        runs = [run for run in summaries if run.label in labels and run.task in EXPERIMENTS[name].tasks]
        groups = {task: of_task for task, of_task in group(runs).items() if len(of_task) > 1}
        if groups:
            report.write(report.compare(groups), out / name)
    alone = [each for each in times if each.about.processes_on_device == 1]
    judged = judge(summaries, tasks, {each.task: each.seconds for each in alone})
    out.mkdir(parents=True, exist_ok=True)
    save_text(out / "claims.md", page(judged, summaries, times).rstrip("\n"))
    return judged


def page(judged: Sequence[Judged], summaries: Sequence[Summary], times: Sequence[Times] = ()) -> str:
    """Return a Markdown page that lists each claim, its verdict and the measured values."""
    over_all = holm([each.outcome.p for each in judged])
    lines = [
        [
            each.name,
            "" if i and judged[i - 1].name == each.name else each.claim.sentence,
            each.task,
            str(each.outcome.verdict),
            str(each.outcome.seeds or "-"),
            *map(_p, (each.outcome.p, each.outcome.corrected_p, p)),
            _commits([run for run in summaries if _is_of(run, each)]),
        ]
        for i, (each, p) in enumerate(zip(judged, over_all, strict=True))
    ]
    heads = ["", "claim", "task", "verdict", "seeds", "p", "of the claim", "of all claims", "commits"]
    sections = [
        "# The paper's claims",
        READING,
        *([SMALLER] if any(run.scale == "laptop" for run in summaries) else []),
        *_made_of(summaries),
        "\n".join(f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *lines)),
        *_instead(judged),
        *_run_times(times),
        "## The numbers",
    ]
    for each in judged:
        title = f"### {each.name}, {each.task}: {each.outcome.verdict}"
        numbers = "\n".join(f"- {line}" for line in each.outcome.numbers)
        sections += [title, each.claim.sentence, numbers]
    return "\n\n".join(sections) + "\n"


def _made_of(summaries: Sequence[Summary]) -> list[str]:
    """Return one line per task that describes the runs on which the verdicts are based."""
    lines = []
    for task in dict.fromkeys(run.task for run in summaries):
        runs = [run for run in summaries if run.task == task]
        facts: dict[str, list[object]] = {
            "scale": [run.scale for run in runs],
            "generations": [run.generations for run in runs],
            "evaluations per elite in corrections": [
                f"{run.corrections['samples'][-1]:g}" for run in runs if "samples" in run.corrections
            ],
            "device": [run.about.device for run in runs],
            "commit": [commit for commit in map(commit_of, runs) if commit != UNKNOWN],
        }
        said = [f"{name} {', '.join(map(str, dict.fromkeys(v)))}" for name, v in facts.items() if v]
        unmarked = Counter(run.label for run in runs if commit_of(run) == UNKNOWN)
        if unmarked:
            of = ", ".join(f"{label} ({n})" for label, n in unmarked.items())
            said.append(f"{unmarked.total()} runs without a commit: {of}")
        lines.append(markdown(f"- {task}: {len(runs)} runs; {'; '.join(said)}"))
    return ["The verdicts are based on these runs:", "\n".join(lines)] if lines else []


def commit_of(run: Summary) -> str:
    """Return the first seven digits of a run's commit, with "-dirty" for uncommitted changes."""
    commit = run.about.commit or UNKNOWN
    return commit if commit == UNKNOWN else commit[:7] + "-dirty" * commit.endswith("-dirty")


def _commits(runs: Sequence[Summary]) -> str:
    """Return the commit of the runs, or the number of commits if there are several."""
    found = list(dict.fromkeys(map(commit_of, runs)))
    known = [commit for commit in found if commit != UNKNOWN]
    words = known if len(known) < 2 else [f"{len(known)} commits"]
    return ", ".join([*words, *([UNKNOWN] if UNKNOWN in found else [])]) or "-"


def _is_of(run: Summary, judged: Judged) -> bool:
    tested = judged.outcome.verdict is not Verdict.NOT_TESTED
    return tested and run.task == judged.task and run.label in judged.outcome.labels


def _p(p: float) -> str:
    return f"{p:.2g}" if math.isfinite(p) else "-"


def _instead(judged: Sequence[Judged]) -> list[str]:
    """List the findings on the claims that were not reproduced or that are inconclusive."""
    astray = (Verdict.NOT_REPRODUCED, Verdict.INCONCLUSIVE)
    told = [each for each in judged if each.outcome.verdict in astray and each.outcome.instead]
    lines = [
        f"- {each.name}, {each.task} ({each.outcome.verdict}): {'; '.join(each.outcome.instead)}"
        for each in told
    ]
    return ["## What was found instead", "\n".join(lines)] if lines else []


def _run_times(times: Sequence[Times]) -> list[str]:
    """Return a table of the measured run times at paper scale, with the paper's times in parentheses."""
    measured = {each.task: each for each in times if each.scale == "paper"}
    tasks = [task for task in MINUTES["memes"] if task in measured]
    if not tasks:
        return []
    rows = [["", *tasks], ["---"] * (1 + len(tasks))]
    for label, paper in MINUTES.items():
        found = [measured[task].seconds.get(label, ()) for task in tasks]
        ours = [
            report.number(interval(seconds).value * measured[task].generations / 60)
            for task, seconds in zip(tasks, found, strict=True)
        ]
        of_paper = (paper.get(task, "-") for task in tasks)
        rows.append([label, *(f"{here} ({there})" for here, there in zip(ours, of_paper, strict=True))])
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    of = "; ".join(
        f"{task}: {max(map(len, each.seconds.values()))} turns, {each.about.device}"
        + f" shared by {each.about.processes_on_device} processes"
        * ((each.about.processes_on_device or 1) > 1)
        + f", commit {str(each.about.commit or UNKNOWN)[:7]}"
        for task, each in measured.items()
    )
    title = (
        "Minutes per run from the median turn, without compilation and files (in parentheses: the paper)"
    )
    return [f"{title}. {markdown(of)}.", table]


def show(judged: Sequence[Judged], console: Console) -> None:
    """Print the verdicts, and the number of claims with each verdict."""
    table = Table(title="The paper's claims", title_justify="left", title_style="bold")
    for column in ("", "task", "verdict", "claim"):
        table.add_column(column)
    for each in judged:
        verdict = each.outcome.verdict
        table.add_row(each.name, each.task, f"[{STYLES[verdict]}]{verdict}[/]", each.claim.sentence)
    console.print(table)
    counts = Counter(each.outcome.verdict for each in judged)
    console.print(", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict]))
