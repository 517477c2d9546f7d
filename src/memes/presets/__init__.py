"""Published algorithms, each a short composition of parts, with the paper's hyper-parameters.

Each is a dataclass: its fields are the options, and its method `build` composes the algorithm for a
task. `PRESETS` contains them by name. Functions take the fields as keywords: `memes(task, lanes=16)` is
`Memes(lanes=16).build(task)` with a name and with the options, which runs record.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, runtime_checkable

from memes.algorithm import Algorithm
from memes.cells import Cells
from memes.estimates import Candidates
from memes.parameters import flat, recorded
from memes.presets.differentiable import CmaMaega, CmaMega
from memes.presets.map_elites import CmaMae, CmaMe, Dns, MapElites, MapElitesSampling, PgaMe
from memes.presets.multi_es import Memes, MemesHybrid, MemesSequential
from memes.presets.search import Search as Search
from memes.presets.single_es import MeEs, NsEs, NsraEs, NsrEs, SingleEs
from memes.task import Task


@runtime_checkable
class Composition(Protocol):
    """The options of an algorithm."""

    def build(self, task: Task, cells: Cells | None = None) -> Algorithm:
        """Compose the algorithm."""


@dataclass(frozen=True)
class Preset:
    """A named algorithm.

    Attributes:
        name: Name of the preset.
        options: Options of the algorithm.
        summary: Description in one line.
    """

    name: str
    options: Composition
    summary: str

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
    Preset("memes", Memes(), "evolution strategies for fitness and for novelty"),
    Preset("memes-all", Memes(offer_samples=True), "MEMES that also offers its samples to the archive"),
    Preset(
        "memes-sampling",
        Memes(candidates=Candidates(candidate_samples=64), search=Search(samples=448)),
        "MEMES that evaluates every mean 64 times",
    ),
    Preset(
        "memes-sequential",
        MemesSequential(),
        "MEMES whose lanes all explore, then all exploit, in turn",
    ),
    Preset(
        "memes-fixed-reset",
        Memes(reset_every=10),
        "MEMES whose lanes are reset every 10 generations",
    ),
    Preset(
        "memes-everything",
        Memes(explore="everything"),
        "MEMES that measures novelty against all offspring",
    ),
    Preset(
        "memes-elites",
        Memes(explore="elites"),
        "MEMES that measures novelty against the elites",
    ),
    Preset("memes-ga", Memes(explore="ga"), "MEMES that explores by random variation of elites"),
    Preset("memes-hybrid", MemesHybrid(), "lanes of MEMES and offspring of MAP-Elites in one archive"),
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
    ),
    Preset("me", MapElites(), "MAP-Elites, 16 384 offspring per generation"),
    Preset("me-128", MapElites(batch=128), "MAP-Elites, 128 offspring per generation"),
    Preset("me-sampling", MapElitesSampling(), "MAP-Elites, 512 offspring evaluated 32 times each"),
    Preset("es", SingleEs(), "one evolution strategy for fitness"),
    Preset("ns-es", NsEs(), "a population of means for novelty, one sampled per generation"),
    Preset("nsr-es", NsrEs(), "the same for fitness and novelty in equal parts"),
    Preset("nsra-es", NsraEs(), "the same with a weight that adapts"),
    Preset("me-es", MeEs(), "one evolution strategy that explores, then exploits"),
    Preset("cma-me", CmaMe(), "CMA-ES emitters that improve the archive, in turn"),
    Preset("cma-mae", CmaMae(), "CMA-ES emitters that improve on slowly rising thresholds"),
    Preset("cma-mega", CmaMega(), "branches along gradients of fitness and features, for smooth tasks"),
    Preset("cma-maega", CmaMaega(), "the same on slowly rising thresholds, as in CMA-MAE"),
    Preset(
        "dns", Dns(), "MAP-Elites with a population that survives by dominated novelty, without cells"
    ),
    Preset("pga-me", PgaMe(), "MAP-Elites with policy gradients, for control tasks"),
)
PRESETS: dict[str, Preset] = {preset.name: preset for preset in _PRESETS}

memes = PRESETS["memes"].build
memes_sequential = PRESETS["memes-sequential"].build
memes_hybrid = PRESETS["memes-hybrid"].build
me = PRESETS["me"].build
me_sampling = PRESETS["me-sampling"].build
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
