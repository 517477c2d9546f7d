"""Published algorithms with the hyper-parameters of the papers, built from the parts of this package.

Each algorithm is a dataclass. Its fields are the options, and its method `build` composes the algorithm
for a task. `PRESETS` contains the presets by name. The functions of this module accept the fields as
keywords. For example, `memes(task, lanes=16)` returns `Memes(lanes=16).build(task)`. The result also
contains the name and the options of the algorithm, so that runs can record them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from memes.algorithm import Algorithm
from memes.cells import Cells
from memes.estimates import Candidates
from memes.parameters import flat, recorded
from memes.presets.differentiable import CmaMaega, CmaMega
from memes.presets.map_elites import CmaMae, CmaMe, Dns, ExtractMe, MapElites, MapElitesSampling, PgaMe
from memes.presets.multi_es import Memes, MemesHybrid, MemesSequential
from memes.presets.search import Search as Search
from memes.presets.single_es import MeEs, NsEs, NsraEs, NsrEs, SingleEs
from memes.task import Task


@runtime_checkable
class Composition(Protocol):
    """The options of an algorithm, and the method that composes the algorithm."""

    def build(self, task: Task, cells: Cells | None = None) -> Algorithm:
        """Compose the algorithm for a task."""


@dataclass(frozen=True)
class Preset:
    """A published algorithm with a name and default options.

    Attributes:
        name: Name of the preset.
        options: Default options of the algorithm.
        summary: Description of the algorithm in one line.
        title: Name of the algorithm in figures and documents, as in the paper.
    """

    name: str
    options: Composition
    summary: str
    title: str

    @cached_property
    def build(self) -> Callable[..., Algorithm]:
        """The function `(task, cells, **options)` that builds the algorithm."""

        def build(
            task: Task, cells: Cells | None = None, *, options: Composition = self.options
        ) -> Algorithm:
            composed = options.build(task, cells)
            return replace(composed, name=self.name, options=recorded(options))

        description = re.split(r"\n\s*Attributes:\n", type(self.options).__doc__ or "")[0]
        build.__name__ = build.__qualname__ = self.name.replace("-", "_")
        build.__doc__ = f"""{description}

    Args:
        task: The task to optimise.
        cells: Cells of the archive; by default the grid of the task.
    """
        return flat(build)


_PRESETS = (
    Preset("memes", Memes(), "evolution strategies for fitness and for novelty", "MEMES"),
    Preset(
        "memes-all",
        Memes(offer_samples=True),
        "MEMES that also offers its samples to the archive",
        "MEMES-all",
    ),
    Preset(
        "memes-sampling",
        Memes(candidates=Candidates(candidate_samples=64), search=Search(samples=448)),
        "MEMES that evaluates every mean 64 times",
        "MEMES-sampling",
    ),
    Preset(
        "memes-sequential",
        MemesSequential(),
        "MEMES in which all lanes explore and exploit in turn",
        "MEMES-sequential",
    ),
    Preset(
        "memes-fixed-reset",
        Memes(reset_every=10),
        "MEMES whose lanes are reset every 10 generations",
        "MEMES-fixed-reset",
    ),
    Preset(
        "memes-everything",
        Memes(explore="everything"),
        "MEMES that measures novelty against all offspring",
        "MEMES-everything",
    ),
    Preset(
        "memes-elites",
        Memes(explore="elites"),
        "MEMES that measures novelty against the elites",
        "MEMES-elites",
    ),
    Preset(
        "memes-ga", Memes(explore="ga"), "MEMES that explores by random variation of elites", "MEMES-GA"
    ),
    Preset(
        "memes-hybrid",
        MemesHybrid(),
        "lanes of MEMES and offspring of MAP-Elites in one archive",
        "MEMES-hybrid",
    ),
    Preset(
        "memes-me",
        MemesHybrid(
            lanes=4,
            proportion_explore=0.5,
            line=0.3,
            search=Search(samples=512),
            candidates=Candidates(candidate_samples=1),
        ),
        "MAP-Elites together with a few lanes of MEMES",
        "MEMES-ME",
    ),
    Preset("me", MapElites(), "MAP-Elites, 16 384 offspring per generation", "ME-16384"),
    Preset("me-128", MapElites(batch=128), "MAP-Elites, 128 offspring per generation", "ME-128"),
    Preset(
        "me-sampling",
        MapElitesSampling(),
        "MAP-Elites, 512 offspring evaluated 32 times each",
        "ME-Sampling",
    ),
    Preset(
        "extract-me",
        ExtractMe(),
        "MAP-Elites that evaluates individuals of a deep archive again",
        "Extract-ME",
    ),
    Preset("es", SingleEs(), "one evolution strategy that maximises fitness", "ES"),
    Preset(
        "ns-es", NsEs(), "means that maximise novelty, one of which is sampled per generation", "NS-ES"
    ),
    Preset("nsr-es", NsrEs(), "like NS-ES, for fitness and novelty in equal parts", "NSR-ES"),
    Preset("nsra-es", NsraEs(), "like NSR-ES, with a weight that adapts to progress", "NSRA-ES"),
    Preset("me-es", MeEs(), "one evolution strategy that explores and exploits in turn", "ME-ES"),
    Preset(
        "cma-me", CmaMe(), "CMA-ES emitters that rank samples by improvement, used in turn", "CMA-ME"
    ),
    Preset(
        "cma-mae",
        CmaMae(),
        "CMA-ES emitters that compare samples with slowly rising thresholds",
        "CMA-MAE",
    ),
    Preset(
        "cma-mega",
        CmaMega(),
        "CMA-ES along the gradients of differentiable tasks",
        "CMA-MEGA",
    ),
    Preset("cma-maega", CmaMaega(), "CMA-MEGA with slowly rising thresholds", "CMA-MAEGA"),
    Preset(
        "dns",
        Dns(),
        "MAP-Elites with a population that survives by dominated novelty, without cells",
        "DNS",
    ),
    Preset("pga-me", PgaMe(), "MAP-Elites with policy gradients, for control tasks", "PGA-ME"),
)
PRESETS: dict[str, Preset] = {preset.name: preset for preset in _PRESETS}


# Maps the label of each variant in `memes reproduce` to the name of the variant in figures.
VARIANTS = {
    "me-tuned": "ME-tuned",
    "me-sampling-tuned": "ME-Sampling-tuned",
    "cma-me-tuned": "CMA-ME-tuned",
    **{f"memes-reset-{n}": f"MEMES-reset-{n}" for n in (10, 20, 50, 100)},
    **{f"memes-{n}-samples": f"MEMES-{n}-samples" for n in ("eighth", "quarter", "half", "twice")},
}


def display_name(label: str, options: Mapping[str, Any] = MappingProxyType({})) -> str:
    """Return the name of an algorithm in figures.

    If the label is the name of a preset, return the title of the preset. If it is the label of a variant
    in `memes reproduce`, return the name of the variant. All other labels are returned unchanged. The
    title of MAP-Elites contains the batch size: the entry `batch` of `options`, or the default of the
    preset.
    """
    if label not in PRESETS:
        return VARIANTS.get(label, label)
    batch = options.get("batch") if label in ("me", "me-128") else None
    return PRESETS[label].title if batch is None else f"ME-{batch}"


memes = PRESETS["memes"].build
memes_sequential = PRESETS["memes-sequential"].build
memes_hybrid = PRESETS["memes-hybrid"].build
me = PRESETS["me"].build
me_sampling = PRESETS["me-sampling"].build
extract_me = PRESETS["extract-me"].build
es = PRESETS["es"].build
ns_es = PRESETS["ns-es"].build
nsr_es = PRESETS["nsr-es"].build
nsra_es = PRESETS["nsra-es"].build
me_es = PRESETS["me-es"].build
cma_me = PRESETS["cma-me"].build
cma_mae = PRESETS["cma-mae"].build
cma_mega = PRESETS["cma-mega"].build
cma_maega = PRESETS["cma-maega"].build
dns = PRESETS["dns"].build
pga_me = PRESETS["pga-me"].build
