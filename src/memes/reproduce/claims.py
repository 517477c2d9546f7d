"""The paper's claims as checks of runs: a table, by task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from memes.reproduce.checks import (
    SIGNIFICANT,
    Check,
    Outcome,
    above,
    all_of,
    at_least,
    at_most,
    between,
    does_not_apply,
    most_have,
    near,
    none_has,
    noted,
    on_par,
    where_run,
)
from memes.reproduce.experiments import BASELINES, TASKS, UNCERTAIN, VARIANTS
from memes.reproduce.quantities import (
    Of,
    best,
    cells_beyond,
    coverage,
    kept,
    lifespan,
    qd,
    seconds,
    step,
)
from memes.store.summary import Summary

BEYOND_THE_TRAP = 13.0
FIXED_RESETS = ("memes-reset-10", "memes-reset-20", "memes-reset-50", "memes-reset-100")
FIFO_ON_PAR = on_par(qd("memes"), qd("memes-everything"))
SLOWER_BY_AT_MOST_9 = at_most(seconds("memes"), seconds("me"), more=0.09)
# Of the paper's table, in generations: explore and exploit lanes. It says how long they live by a
# statistic of its own (`Summary.lifespans`); runs of it are as near as this if they agree.
LIFESPANS = {
    "arm": (143.0, 265.7),
    "hexapod": (362.4, 337.2),
    "ant": (249.5, 366.5),
    "ant-trap": (270.1, 387.7),
}
NEAR = 0.25


class Claim(NamedTuple):
    """A sentence, and for each task what must hold of its runs."""

    name: str
    sentence: str
    checks: dict[str, Sequence[Check]]


class Judged(NamedTuple):
    """A claim on a task, and what the runs say of it."""

    claim: Claim
    task: str
    outcome: Outcome


def judge(summaries: Sequence[Summary], tasks: Sequence[str] = TASKS) -> list[Judged]:
    """Every claim on those of its tasks that are meant."""
    return [
        Judged(claim, task, all_of(checks, _by_label(summaries, task)))
        for claim in CLAIMS
        for task, checks in claim.checks.items()
        if task in tasks
    ]


def _by_label(summaries: Sequence[Summary], task: str) -> dict[str, list[Summary]]:
    found: dict[str, list[Summary]] = {}
    for run in summaries:
        if run.task == task:
            found.setdefault(run.label, []).append(run)
    return found


def _baselines(task: str, *apart: str) -> list[str]:
    return [name for name in BASELINES if task in VARIANTS[name].tasks and name not in apart]


def _above_all(
    others: Sequence[str], *quantities: Callable[[str], Of], level: float = SIGNIFICANT
) -> list[Check]:
    """MEMES is above each of the others in each of the quantities."""
    return [above(of("memes"), of(other), level) for other in others for of in quantities]


def _lifespans(task: str) -> list[Check]:
    """Lifespans are near those of the table, and the kind of lane that lives longer there does here."""
    explore, exploit = (lifespan("memes", kind) for kind in ("explore", "exploit"))
    of_explore, of_exploit = LIFESPANS[task]
    order = (exploit, explore) if of_exploit > of_explore else (explore, exploit)
    return [above(*order), near(exploit, of_exploit, NEAR), near(explore, of_explore, NEAR)]


def _more_steps(task: str) -> list[Check]:
    """Later resets help, though on the Arm 100 are too many; and what they are said to help with."""
    middle, latest = qd("memes-reset-50"), qd("memes-reset-100")
    if task == "arm":
        return [above(middle, qd("memes-reset-20")), above(middle, latest)]
    helped = {"ant": [best], "ant-trap": [coverage]}.get(task, [])
    return [
        *(above(of("memes-reset-100"), of("memes-reset-20")) for of in (qd, *helped)),
        on_par(latest, middle),
    ]


CLAIMS = (
    Claim(
        "C1",
        "On the Arm, MEMES has a higher QD-score and coverage than every baseline.",
        {"arm": _above_all(_baselines("arm"), qd, coverage)},
    ),
    Claim(
        "C1b",
        "The same at the level that the paper reports, p < 0.08.",
        {"arm": _above_all(_baselines("arm"), qd, coverage, level=0.08)},
    ),
    Claim(
        "C2",
        "On the Hexapod, MEMES is on par with ME-16384 and above all other baselines.",
        {
            "hexapod": [
                *(on_par(of("memes"), of("me")) for of in (qd, coverage)),
                *_above_all(_baselines("hexapod", "me"), qd, coverage),
            ]
        },
    ),
    Claim(
        "C3",
        "On the Arm, MEMES-all has a higher QD-score and coverage than MEMES.",
        {"arm": [above(of("memes-all"), of("memes")) for of in (qd, coverage)]},
    ),
    Claim(
        "C4",
        "On the Hexapod, MEMES-all is on par with MEMES.",
        {"hexapod": [on_par(of("memes-all"), of("memes")) for of in (qd, coverage)]},
    ),
    Claim(
        "C5",
        "On the Ant, MEMES has a higher QD-score and coverage than PGA-ME, and a lower max fitness.",
        {
            "ant": [
                *_above_all(["pga-me"], qd, coverage),
                above(best("pga-me"), best("memes")),
            ]
        },
    ),
    Claim(
        "C6",
        "On the Ant, the max fitness of MEMES is close to that of ES: within 10%.",
        {"ant": [on_par(best("memes"), best("es"), within=0.1)]},
    ),
    Claim(
        "C7",
        "On the AntTrap, MEMES has elites beyond the trap once it is corrected, and no baseline that "
        "was run has.",
        {
            "ant-trap": [
                most_have(cells_beyond("memes", BEYOND_THE_TRAP)),
                where_run(
                    lambda name: none_has(cells_beyond(name, BEYOND_THE_TRAP)), _baselines("ant-trap")
                ),
            ]
        },
    ),
    Claim(
        "C8",
        "MEMES loses at most as much of its QD-score to correction as ME-Sampling, and less than "
        "ME-128, ME-16384 and MEMES-all.",
        {
            "arm": [does_not_apply("the Arm is deterministic: there is nothing to correct")],
            **{
                task: [
                    at_least(kept("memes"), kept("me-sampling")),
                    *_above_all(["me-128", "me", "memes-all"], kept),
                ]
                for task in UNCERTAIN
            },
        },
    ),
    Claim(
        "C9",
        "Exploit lanes move by less than a cell in a step, and by less than PGA-ME and ME.",
        {
            task: [
                between(step("memes", "exploit"), 0.0, 1.0),
                above(step("me", "variation"), step("memes", "exploit")),
                *(
                    [above(step("pga-me", "exploit"), step("memes", "exploit"))]
                    if task in VARIANTS["pga-me"].tasks
                    else []
                ),
            ]
            for task in ("hexapod", "ant")
        },
    ),
    Claim(
        "C10",
        "Exploring and exploiting at once, reset every 10 generations, is above doing both in turn.",
        {task: [above(qd("memes-reset-10"), qd("memes-sequential"))] for task in TASKS},
    ),
    Claim(
        "C11",
        "Adaptive resets are at least as good as resets every 10, 20, 50 or 100 generations, in "
        "QD-score, coverage and max fitness.",
        {
            task: [
                at_least(of("memes"), of(fixed)) for fixed in FIXED_RESETS for of in (qd, coverage, best)
            ]
            for task in TASKS
        },
    ),
    Claim(
        "C12",
        "Novelty against the last 50 000 offspring is on par with novelty against all; against the "
        "elites it is best on the Hexapod and worse on the AntTrap; random variation explores well on "
        "the Arm, worse elsewhere.",
        {
            "arm": [FIFO_ON_PAR, at_least(qd("memes-ga"), qd("memes"))],
            "hexapod": [
                FIFO_ON_PAR,
                *(at_least(qd("memes-elites"), qd(other)) for other in ("memes", "memes-everything")),
                above(qd("memes"), qd("memes-ga")),
            ],
            "ant": [FIFO_ON_PAR, *_above_all(["memes-ga"], qd)],
            "ant-trap": [FIFO_ON_PAR, *_above_all(["memes-ga", "memes-elites"], qd)],
        },
    ),
    Claim(
        "C13",
        "Lifespans are within a quarter of those in the paper's table, and the same kind of lane lives "
        "longer.",
        {task: _lifespans(task) for task in TASKS},
    ),
    Claim(
        "C14",
        "A run of MEMES takes at most 9% longer than one of ME-16384.",
        {
            "arm": [noted(SLOWER_BY_AT_MOST_9, "the paper gives no times for the Arm")],
            **{task: [SLOWER_BY_AT_MOST_9] for task in TASKS if task != "arm"},
        },
    ),
    Claim(
        "C15",
        "Four times the lanes (128 at paper scale) are better.",
        {
            task: [above(of("memes-x4"), of("memes")) for of in (qd, coverage)]
            for task in ("arm", "hexapod", "ant")
        },
    ),
    Claim(
        "C16",
        "MEMES has a higher QD-score than ME-16384 on Ant and AntTrap, and than ME-Sampling on AntTrap.",
        {
            "ant": _above_all(["me"], qd),
            "ant-trap": _above_all(["me", "me-sampling"], qd),
        },
    ),
    Claim(
        "C17",
        "On the Ant, MEMES has a higher coverage than ME-128, ME-16384, PGA-ME, ES, NS-ES and NSR-ES.",
        {"ant": _above_all(["me-128", "me", "pga-me", "es", "ns-es", "nsr-es"], coverage)},
    ),
    Claim(
        "C18",
        "On the AntTrap, MEMES has a higher QD-score than every baseline.",
        {"ant-trap": _above_all(_baselines("ant-trap"), qd)},
    ),
    Claim(
        "C19",
        "Resets every 100 generations are above those every 20, and on par with those every 50; on the "
        "Arm 50 are above both. On the Ant they help max fitness, on the AntTrap coverage.",
        {task: _more_steps(task) for task in TASKS},
    ),
    Claim(
        "C20",
        "Twice the samples (1 024 at paper scale) gain at most 5% of QD-score.",
        {task: [at_most(qd("memes-twice-samples"), qd("memes"), more=0.05)] for task in TASKS},
    ),
    Claim(
        "C21",
        "On uncertain tasks, MEMES has a higher QD-score than ME-Sampling (as the abstract has it).",
        {"ant": _above_all(["me-sampling"], qd)},
    ),
)
