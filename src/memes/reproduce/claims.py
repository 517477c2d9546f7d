"""The claims of the paper and of this library, and the checks of each claim on each task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from memes.reproduce.checks import (
    Check,
    ClaimOutcome,
    above,
    all_of,
    at_least,
    at_most,
    between,
    have_more,
    most_have,
    near,
    no_significant_gain,
    on_par,
)
from memes.reproduce.experiments import (
    BASELINES,
    CERTAIN,
    FIXED_RESETS,
    NONE,
    TASKS,
    UNCERTAIN,
    VARIANTS,
)
from memes.reproduce.quantities import (
    Evidence,
    Quantity,
    area,
    best,
    best_above_least,
    cells_beyond,
    coverage,
    kept,
    lifespan,
    productive,
    qd,
    seconds,
    step,
)
from memes.store.summary import Summary

BEYOND_THE_TRAP = 13.0
STANDING = 250.0  # This is the fitness of an ant that does not move during an episode.
HUNDREDS = 200.0  # This is the minimum productive life of a lane in claim C22, in generations.

# Lifespans of explore and exploit lanes in generations, from the paper's table. The paper reports a
# special statistic, `paper_mean`. The docstring of `Summary` describes it. Measured lifespans may differ
# from the paper's lifespans by at most the share `NEAR`.
LIFESPANS = {
    "arm": (143.0, 265.7),
    "hexapod": (362.4, 337.2),
    "ant": (249.5, 366.5),
    "ant-trap": (270.1, 387.7),
}
NEAR = 0.25


class Claim(NamedTuple):
    """A claim, and the checks that determine its verdict.

    Attributes:
        sentence: The claim.
        checks: The checks of the claim by task. The claim does not apply to tasks with an empty list.
        notes: Additional lines for the page of claims, by task.
        reported: For each task, the quantities that are listed for each seed without affecting the
            verdict.
        family: Whether the p-values of the checks are corrected together by Holm's method.
    """

    sentence: str
    checks: dict[str, Sequence[Check]]
    notes: Mapping[str, str] = NONE
    reported: Mapping[str, Sequence[Quantity]] = NONE
    family: bool = False


class Judged(NamedTuple):
    """The outcome of a claim on a task."""

    name: str
    claim: Claim
    task: str
    outcome: ClaimOutcome


def judge(
    summaries: Sequence[Summary],
    tasks: Sequence[str] = TASKS,
    times: Mapping[str, Mapping[str, Sequence[float]]] = NONE,
) -> list[Judged]:
    """Return the outcome of every claim on the tasks.

    Args:
        summaries: The summaries of the runs.
        tasks: Names of the tasks.
        times: Seconds per generation, by task and label. The algorithms took turns on one device.
    """
    runs: dict[str, dict[str, list[Summary]]] = {task: {} for task in tasks}
    for run in summaries:
        runs.setdefault(run.task, {}).setdefault(run.label, []).append(run)
    judged = []
    for name, claim in CLAIMS.items():
        for task in (task for task in claim.checks if task in tasks):
            evidence = Evidence(runs[task], times.get(task, NONE))
            outcome = all_of(claim.checks[task], evidence, claim.family)
            lines = [
                _listed(of, evidence) for of in claim.reported.get(task, ()) if runs[task].get(of.label)
            ]
            notes = [claim.notes[task]] if task in claim.notes else []
            outcome = outcome._replace(numbers=(*outcome.numbers, *lines, *notes))
            judged.append(Judged(name, claim, task, outcome))
    return judged


def _listed(of: Quantity, evidence: Evidence) -> str:
    values = ", ".join(f"{value:g}" for value in of.values(evidence))
    return f"{of.words}: {of.label} {values or '-'} (one number per seed)"


def _baselines(task: str, *apart: str) -> list[str]:
    return [name for name in BASELINES if task in VARIANTS[name].tasks and name not in apart]


def _each(
    relation: Callable[..., Check],
    label: str,
    others: Sequence[str],
    *quantities: Callable[[str], Quantity],
    **how: float,
) -> list[Check]:
    """Return checks that compare a label with each of `others` in each quantity."""
    return [relation(of(label), of(other), **how) for other in others for of in quantities]


def _lifespans(task: str) -> list[Check]:
    """Return checks that the lifespans are near the paper's values and in the same order."""
    explore, exploit = (lifespan("memes", kind) for kind in ("explore", "exploit"))
    of_explore, of_exploit = LIFESPANS[task]
    order = (exploit, explore) if of_exploit > of_explore else (explore, exploit)
    return [above(*order), near(exploit, of_exploit, NEAR), near(explore, of_explore, NEAR)]


def _later_resets(*helped: Callable[[str], Quantity]) -> list[Check]:
    """Return checks about resets every 100 generations.

    The claim has two parts. First, the given quantities are higher for resets every 100 generations than
    for resets every 20 generations. Second, the QD-score for resets every 100 generations is on par with
    the QD-score for resets every 50 generations.
    """
    above_20 = _each(above, "memes-reset-100", ["memes-reset-20"], *helped)
    return [*above_20, on_par(qd("memes-reset-100"), qd("memes-reset-50"))]


BEYOND = partial(cells_beyond, x=BEYOND_THE_TRAP)
WITHIN_A_CELL = between(step("memes", "exploit"), 0.0, 1.0)
SHORTER_THAN_ME = above(step("me", "variation"), step("memes", "exploit"))
SHORTER_THAN_PGA_ME = above(step("pga-me", "exploit"), step("memes", "exploit"))
FIFO_ON_PAR = on_par(qd("memes"), qd("memes-everything"))

CLAIMS = {
    "C1": Claim(
        "On the Arm, MEMES has a higher QD-score and coverage than every baseline.",
        {"arm": _each(above, "memes", _baselines("arm"), qd, coverage)},
    ),
    "C1b": Claim(
        "On the Arm, MEMES has a higher QD-score and coverage than every baseline, at the level of the "
        "paper (p < 0.08).",
        {"arm": _each(above, "memes", _baselines("arm"), qd, coverage, level=0.08)},
    ),
    "C2": Claim(
        "On the Hexapod, MEMES is on par with ME-16384 and above all other baselines.",
        {
            "hexapod": [
                *_each(on_par, "memes", ["me"], qd, coverage),
                *_each(above, "memes", _baselines("hexapod", "me"), qd, coverage),
            ]
        },
    ),
    "C3": Claim(
        "On the Arm, MEMES-all has a higher QD-score and coverage than MEMES.",
        {"arm": _each(above, "memes-all", ["memes"], qd, coverage)},
    ),
    "C4": Claim(
        "On the Hexapod, MEMES-all is on par with MEMES.",
        {"hexapod": _each(on_par, "memes-all", ["memes"], qd, coverage)},
    ),
    "C5": Claim(
        "On the Ant, MEMES has a higher QD-score and coverage than PGA-ME, and a lower max fitness.",
        {
            "ant": [
                *_each(above, "memes", ["pga-me"], qd, coverage),
                above(best("pga-me"), best("memes")),
            ]
        },
    ),
    "C6": Claim(
        "On the Ant, the max fitness of MEMES is close to that of ES: within 10%.",
        {"ant": [on_par(best("memes"), best("es"), within=0.1)]},
    ),
    "C7": Claim(
        "On the AntTrap, the corrected archives of MEMES have elites beyond the trap in most seeds, and "
        "in more seeds or more cells than those of every baseline.",
        {
            "ant-trap": [
                most_have(BEYOND("memes")),
                *(have_more(BEYOND("memes"), BEYOND(name)) for name in _baselines("ant-trap")),
            ]
        },
        reported={"ant-trap": [cells_beyond("memes", BEYOND_THE_TRAP, STANDING)]},
    ),
    "C8": Claim(
        "MEMES loses at most as much of its QD-score to correction as ME-Sampling, and less than "
        "ME-128, ME-16384 and MEMES-all.",
        {
            "arm": [],
            **{
                task: [
                    at_least(kept("memes"), kept("me-sampling")),
                    *_each(above, "memes", ["me-128", "me", "memes-all"], kept),
                ]
                for task in UNCERTAIN
            },
        },
        {"arm": "the Arm is deterministic: there is nothing to correct"},
    ),
    "C9": Claim(
        "Steps of exploit lanes in feature space are shorter than steps of PGA-ME and ME-16384. On "
        "Hexapod and Ant, they are shorter than a cell width.",
        {
            "arm": [SHORTER_THAN_ME],
            "hexapod": [WITHIN_A_CELL, SHORTER_THAN_ME],
            "ant": [WITHIN_A_CELL, SHORTER_THAN_ME, SHORTER_THAN_PGA_ME],
            "ant-trap": [SHORTER_THAN_ME, SHORTER_THAN_PGA_ME],
        },
    ),
    "C10": Claim(
        "With resets every 10 generations, exploring and exploiting at the same time gives a higher "
        "QD-score than exploring and exploiting in turn.",
        {task: [above(qd("memes-reset-10"), qd("memes-sequential"))] for task in TASKS},
    ),
    "C11": Claim(
        "Adaptive resets are at least as good as resets every 10, 20, 50 or 100 generations, in "
        "QD-score, coverage and max fitness.",
        {
            # The best fitness on the Hexapod is about 0, so its relative differences are meaningless.
            task: _each(
                at_least,
                "memes",
                FIXED_RESETS,
                *(qd, coverage, best_above_least if task == "hexapod" else best),
            )
            for task in TASKS
        },
    ),
    "C12": Claim(
        "Novelty compared with the last 50 000 offspring is on par with novelty compared with all "
        "offspring. Novelty compared with the elites is best on the Hexapod and worse on the AntTrap. "
        "Random variation explores well on the Arm, but worse on the other tasks.",
        {
            "arm": [FIFO_ON_PAR, at_least(qd("memes-ga"), qd("memes"))],
            "hexapod": [
                FIFO_ON_PAR,
                *_each(at_least, "memes-elites", ["memes", "memes-everything"], qd),
                above(qd("memes"), qd("memes-ga")),
            ],
            "ant": [FIFO_ON_PAR, above(qd("memes"), qd("memes-ga"))],
            "ant-trap": [FIFO_ON_PAR, *_each(above, "memes", ["memes-ga", "memes-elites"], qd)],
        },
    ),
    "C13": Claim(
        "Lifespans differ by at most a quarter from the paper's table, and the same kind of lane has "
        "the longer lifespan.",
        {task: _lifespans(task) for task in TASKS},
    ),
    "C14": Claim(
        "A generation of MEMES takes at most 9% longer than a generation of ME-16384.",
        {
            task: [at_most(seconds("memes"), seconds("me"), more=0.09)] if task != "arm" else []
            for task in TASKS
        },
        {"arm": "the paper gives no times for the Arm"},
    ),
    "C15": Claim(
        "Four times as many lanes (128 at paper scale) give better results. On the AntTrap, they have "
        "only 4 000 instead of 10 000 generations, and a lower QD-score.",
        {
            **dict.fromkeys(
                ("arm", "hexapod", "ant"), _each(above, "memes-x4", ["memes"], qd, coverage)
            ),
            "ant-trap": [above(qd("memes"), qd("memes-x4"))],
        },
    ),
    "C16": Claim(
        "MEMES has a higher QD-score than ME-16384 on Ant and AntTrap, and than ME-Sampling on AntTrap.",
        {
            "ant": _each(above, "memes", ["me"], qd),
            "ant-trap": _each(above, "memes", ["me", "me-sampling"], qd),
        },
    ),
    "C17": Claim(
        "On the Ant, MEMES has a higher coverage than ME-128, ME-16384, PGA-ME, ES, NS-ES and NSR-ES.",
        {"ant": _each(above, "memes", ["me-128", "me", "pga-me", "es", "ns-es", "nsr-es"], coverage)},
    ),
    "C18": Claim(
        "On the AntTrap, MEMES has a higher QD-score than every baseline.",
        {"ant-trap": _each(above, "memes", _baselines("ant-trap"), qd)},
    ),
    "C19": Claim(
        "The QD-score with resets every 100 generations is higher than with resets every 20, and on par "
        "with resets every 50. On the Arm, it is highest with resets every 50. Resets every 100 also "
        "increase max fitness on the Ant, and coverage on the AntTrap.",
        {
            "arm": _each(above, "memes-reset-50", ["memes-reset-20", "memes-reset-100"], qd),
            "hexapod": _later_resets(qd),
            "ant": _later_resets(qd, best),
            "ant-trap": _later_resets(qd, coverage),
        },
    ),
    "C20": Claim(
        "Twice as many samples (1 024 at paper scale) do not increase the QD-score significantly.",
        {task: [no_significant_gain(qd("memes-twice-samples"), qd("memes"))] for task in TASKS},
    ),
    "C21": Claim(
        "On uncertain tasks, MEMES has a higher QD-score than ME-Sampling (as the abstract states).",
        {"ant": [above(qd("memes"), qd("me-sampling"))]},
    ),
    "C22": Claim(
        "Some lanes are productive for hundreds of generations: 200 or more between the start of a lane "
        "and its last candidate that enters the archive.",
        {task: [between(productive("memes"), HUNDREDS)] for task in TASKS},
    ),
    "C23": Claim(
        "On the Ant, resets every 100 and every 20 generations are on par in coverage.",
        {"ant": [on_par(coverage("memes-reset-100"), coverage("memes-reset-20"))]},
    ),
    # Claims of this library. If a claim has n comparisons, the significance level of each comparison is
    # 5% / n, so that the joint level is 5%. B3 uses Holm's method instead.
    "B1": Claim(
        "Beyond the paper: MEMES-sampling takes at most 7% longer than MEMES. Its QD-score is higher "
        "than that of MEMES, MEMES-all, ME-16384, ME-Sampling and tuned ME-Sampling, at p < 0.01 each.",
        {
            task: [
                *_each(
                    above,
                    "memes-sampling",
                    ["memes", "memes-all", "me", "me-sampling", "me-sampling-tuned"],
                    qd,
                    level=0.01,
                ),
                at_most(seconds("memes-sampling"), seconds("memes"), more=0.07),
            ]
            for task in UNCERTAIN
        },
    ),
    "B2": Claim(
        "Beyond the paper: MEMES-ME has a higher QD-score than MEMES, MEMES-all, ME-16384 and ME-16384 "
        "with MEMES-ME's step along the line, at p < 0.0125 each.",
        {
            task: _each(above, "memes-me", ["memes", "memes-all", "me", "me-tuned"], qd, level=0.0125)
            for task in CERTAIN
        },
    ),
    "B3": Claim(
        "Beyond the paper: on the Ant, MEMES-hybrid has a higher QD-score than MEMES-sampling, MEMES, "
        "tuned ME-Sampling, ME-16384 and ME-Sampling, at p < 0.05 each after Holm correction. This "
        "applies to the end of the run and to the average over the logarithm of evaluations.",
        {
            "ant": _each(
                above,
                "memes-hybrid",
                ["memes-sampling", "memes", "me-sampling-tuned", "me", "me-sampling"],
                qd,
                area,
            )
        },
        family=True,
    ),
}
