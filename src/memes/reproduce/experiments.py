"""The table of experiments, with variants of algorithms from the paper and additional variants."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

TASKS = ("arm", "hexapod", "ant", "ant-trap")
CERTAIN = ("arm", "hexapod")
UNCERTAIN = ("ant", "ant-trap")
# The optional module that a task or an algorithm needs, and the extra that installs this module.
ROBOTS, EVOSAX = ("mujoco", "robots"), ("evosax", "evosax")
NEEDS = {"hexapod": ROBOTS, "ant": ROBOTS, "ant-trap": ROBOTS, "cma-me": EVOSAX}
NONE: Mapping[str, Any] = MappingProxyType({})


class Variant(NamedTuple):
    """An algorithm as used in an experiment.

    Attributes:
        algorithm: A preset.
        options: Options that differ from the defaults of the preset.
        times: Maps options to factors. The value of an option at the chosen scale is multiplied by its
            factor, and rounded down to a whole number.
        tasks: Tasks on which the variant is run.
        generations: Number of generations at paper scale, for each task on which this number differs
            from the default.
    """

    algorithm: str
    options: Mapping[str, Any] = NONE
    times: Mapping[str, float] = NONE
    tasks: tuple[str, ...] = TASKS
    generations: Mapping[str, int] = NONE


# The `sigma` of CMA-ME. With the paper's value 0.5, nearly every generation ends in a restart.
TUNED_SIGMA = 0.05
# The `line` of ME-16384. MEMES-ME has the same value, so that the effect of lanes can be measured.
TUNED_LINE = 0.3
# The best of eight tested configurations of ME-Sampling on the Ant. The configuration of memes-hybrid
# was chosen in the same way (docs/beyond.md).
TUNED_SAMPLING = {"statistic": "median", "line": 0.3, "resamples": 64, "batch": 256}
# The paper's number of generations for variants with four times as many lanes.
SHORTER = {"ant-trap": 4000}

PLAIN = (
    *("memes", "memes-all", "memes-sequential", "memes-everything", "memes-elites", "memes-ga"),
    *("me", "me-128", "es", "ns-es", "nsr-es", "nsra-es", "me-es"),
)

# The variants by label. Labels identify variants in files, tables and figures.
VARIANTS = {
    **{name: Variant(name) for name in PLAIN},
    **{f"memes-reset-{n}": Variant("memes-fixed-reset", {"reset_every": n}) for n in (10, 20, 50, 100)},
    "memes-eighth-samples": Variant("memes", times={"samples": 1 / 8}),
    "memes-quarter-samples": Variant("memes", times={"samples": 1 / 4}),
    "memes-half-samples": Variant("memes", times={"samples": 1 / 2}),
    "memes-twice-samples": Variant("memes", times={"samples": 2}),
    "memes-x4": Variant("memes", times={"lanes": 4}, generations=SHORTER),
    "memes-all-x4": Variant("memes-all", times={"lanes": 4}, generations=SHORTER),
    "me-x4": Variant("me", times={"batch": 4}, generations=SHORTER),
    "memes-sampling": Variant("memes-sampling", tasks=UNCERTAIN),
    "me-sampling": Variant("me-sampling", tasks=UNCERTAIN),
    "me-sampling-tuned": Variant("me-sampling", TUNED_SAMPLING, tasks=UNCERTAIN),
    "memes-hybrid": Variant("memes-hybrid"),
    "extract-me": Variant("extract-me", tasks=UNCERTAIN),
    "pga-me": Variant("pga-me", tasks=UNCERTAIN),
    "memes-me": Variant("memes-me", tasks=CERTAIN),
    "me-tuned": Variant("me", {"line": TUNED_LINE}, tasks=CERTAIN),
    "cma-me": Variant("cma-me", tasks=CERTAIN),
    "cma-me-tuned": Variant("cma-me", {"sigma": TUNED_SIGMA}, tasks=CERTAIN),
}

BASELINES = (
    *("es", "ns-es", "nsr-es", "nsra-es", "me-128", "me", "me-sampling", "me-es", "cma-me", "pga-me"),
)
OF_RESETS = {"arm": 30}  # more seeds, because the differences are small and runs take seconds
FIXED_RESETS = ("memes-reset-10", "memes-reset-20", "memes-reset-50", "memes-reset-100")


class Experiment(NamedTuple):
    """A comparison of variants of algorithms, and the runs that the comparison needs.

    Attributes:
        title: Description of the comparison.
        labels: Labels of the variants.
        seeds: Number of seeds. If 0, the variants are only timed, and take turns on one device.
        tasks: Tasks on which the variants are run.
        seeds_on: Number of seeds, by task, for tasks on which it differs from `seeds`.
    """

    title: str
    labels: tuple[str, ...]
    seeds: int = 10
    tasks: tuple[str, ...] = TASKS
    seeds_on: Mapping[str, int] = NONE


EXPERIMENTS = {
    "main": Experiment(
        "MEMES against the baselines", ("memes", "memes-all", *BASELINES, "cma-me-tuned")
    ),
    "sampling": Experiment(
        "the archive loss due to evaluation noise",
        ("memes", "memes-all", "me-128", "me", "me-sampling", "pga-me"),
        tasks=UNCERTAIN,
    ),
    "local": Experiment("the distance between offspring and their parents", ("memes", "me", "pga-me")),
    "sequential": Experiment(
        "exploring and exploiting in turn, compared with both at the same time",
        ("memes-sequential", "memes-reset-10"),
        seeds=5,
        seeds_on=OF_RESETS,
    ),
    "reset": Experiment(
        "adaptive resets compared with fixed resets",
        ("memes", *FIXED_RESETS),
        seeds=5,
        seeds_on=OF_RESETS,
    ),
    "explore": Experiment(
        "ways to explore", ("memes", "memes-everything", "memes-elites", "memes-ga"), seeds=5
    ),
    "lanes": Experiment(
        "four times as many lanes: 128 at paper scale",
        ("memes", "memes-x4", "memes-all", "memes-all-x4", "me", "me-x4"),
    ),
    "samples": Experiment(
        "an eighth to twice as many samples per lane: 64 to 1 024 at paper scale",
        (
            *("memes-eighth-samples", "memes-quarter-samples", "memes-half-samples", "memes"),
            "memes-twice-samples",
        ),
        seeds=5,
    ),
    "beyond": Experiment(
        "beyond the paper: repeated evaluation of means, and lanes combined with MAP-Elites",
        (
            *("memes-hybrid", "memes", "memes-sampling", "memes-me", "memes-all"),
            *("me", "me-tuned", "me-sampling", "me-sampling-tuned", "extract-me"),
        ),
        seeds=5,
        seeds_on={"ant": 10},
    ),
    "time": Experiment(
        "time per generation, measured in turns on the same device",
        ("me-128", "me", "pga-me", "memes", "memes-all", "memes-sampling"),
        seeds=0,
    ),
}

# The paper's table of run times in minutes, without the Arm.
MINUTES = {
    "me-128": {"hexapod": 4, "ant": 25, "ant-trap": 81},
    "me": {"hexapod": 60, "ant": 69, "ant-trap": 753},
    "pga-me": {"ant": 150, "ant-trap": 383},
    "memes": {"hexapod": 64, "ant": 77, "ant-trap": 813},
    "memes-all": {"hexapod": 87, "ant": 100, "ant-trap": 960},
}

# Options that a scale sets in experiments, in addition to the options that `memes run --scale` sets.
# Options that an algorithm or a task does not have are ignored. No option is set to a value above its
# default.
CHANGES: dict[str, dict[str, dict[str, Any]]] = {
    "paper": {},
    "laptop": {
        "arm": {
            **{"generations": 300, "joints": 200, "lanes": 8, "samples": 64, "batch": 512},
            # The history stores 1 900 of the 2 400 candidates of a run. At paper scale, it stores
            # 50 000 of 64 000 candidates.
            "fifo_size": 1900,
        },
    },
}
# Maximum number of seeds per scale. With fewer seeds at laptop scale, the corrected p-values of some
# claims could never be significant.
MOST_SEEDS = {"paper": 30, "laptop": 7}
