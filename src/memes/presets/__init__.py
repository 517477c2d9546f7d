"""Published algorithms, each a short composition of the parts, with the paper's hyper-parameters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from memes.algorithm import Algorithm
from memes.presets.map_elites import cma_mae as cma_mae
from memes.presets.map_elites import cma_me as cma_me
from memes.presets.map_elites import dns as dns
from memes.presets.map_elites import me as me
from memes.presets.map_elites import me_sampling as me_sampling
from memes.presets.map_elites import pga_me as pga_me
from memes.presets.multi_es import memes as memes
from memes.presets.multi_es import memes_hybrid as memes_hybrid
from memes.presets.multi_es import memes_sequential as memes_sequential
from memes.presets.single_es import es as es
from memes.presets.single_es import me_es as me_es
from memes.presets.single_es import ns_es as ns_es
from memes.presets.single_es import nsr_es as nsr_es
from memes.presets.single_es import nsra_es as nsra_es


class Preset(NamedTuple):
    """A named algorithm: `build(task, cells, **hyper_parameters)`, and what it is in one line."""

    build: Callable[..., Algorithm]
    summary: str


PRESETS: dict[str, Preset] = {
    "memes": Preset(memes, "evolution strategies for fitness and for novelty"),
    "memes-all": Preset(
        partial(memes, offer_samples=True), "MEMES that offers its samples to the archive too"
    ),
    "memes-sampling": Preset(
        partial(memes, candidate_samples=64, samples=448),
        "MEMES that evaluates every mean 64 times",
    ),
    "memes-sequential": Preset(
        memes_sequential, "MEMES whose lanes all explore, then all exploit, in turn"
    ),
    "memes-fixed-reset": Preset(
        partial(memes, reset_every=10), "MEMES whose lanes are reset every 10 generations"
    ),
    "memes-everything": Preset(
        partial(memes, explore="everything"), "MEMES that measures novelty against all offspring"
    ),
    "memes-elites": Preset(
        partial(memes, explore="elites"), "MEMES that measures novelty against the elites"
    ),
    "memes-ga": Preset(
        partial(memes, explore="ga"), "MEMES that explores by random variation of elites"
    ),
    "memes-hybrid": Preset(memes_hybrid, "lanes of MEMES and offspring of MAP-Elites in one archive"),
    "memes-me": Preset(
        partial(
            memes_hybrid,
            lanes=4,
            proportion_explore=0.5,
            line=0.3,
            samples=512,
            candidate_samples=1,
        ),
        "MAP-Elites and a few lanes of MEMES side by side",
    ),
    "me": Preset(me, "MAP-Elites, 16 384 offspring a generation"),
    "me-128": Preset(partial(me, batch=128), "MAP-Elites, 128 offspring a generation"),
    "me-sampling": Preset(me_sampling, "MAP-Elites, 512 offspring evaluated 32 times each"),
    "es": Preset(es, "one evolution strategy for fitness"),
    "ns-es": Preset(ns_es, "a population of means for novelty, one played at a time"),
    "nsr-es": Preset(nsr_es, "the same for fitness and novelty in equal parts"),
    "nsra-es": Preset(nsra_es, "the same with a weight that adapts"),
    "me-es": Preset(me_es, "one evolution strategy that explores, then exploits"),
    "cma-me": Preset(cma_me, "CMA-ES emitters that improve the archive, in turn"),
    "cma-mae": Preset(cma_mae, "CMA-ES emitters that improve on slowly rising thresholds"),
    "dns": Preset(dns, "MAP-Elites without cells: a population that survives by dominated novelty"),
    "pga-me": Preset(pga_me, "MAP-Elites with policy gradients, for control tasks"),
}
