"""Emitters, which propose genotypes and learn from the evaluations of these genotypes."""

from memes.emitters.base import Batch as Batch
from memes.emitters.base import Emitter as Emitter
from memes.emitters.base import Lanes as Lanes
from memes.emitters.base import Rows as Rows
from memes.emitters.cma import CMA as CMA
from memes.emitters.compose import InTurn as InTurn
from memes.emitters.compose import OneOf as OneOf
from memes.emitters.compose import Parallel as Parallel
from memes.emitters.es import ES as ES
from memes.emitters.gradient_arborescence import GradientArborescence as GradientArborescence
from memes.emitters.isoline import Isoline as Isoline
from memes.emitters.policy_gradient import PolicyGradient as PolicyGradient
from memes.emitters.population import ByNovelty as ByNovelty
from memes.emitters.population import Population as Population
from memes.emitters.reevaluation import Reevaluation as Reevaluation
