"""Emitters propose genotypes and learn from their evaluation."""

from memes.emitters.base import Emitter as Emitter
from memes.emitters.base import Lanes as Lanes
from memes.emitters.base import Proposal as Proposal
from memes.emitters.base import Rows as Rows
from memes.emitters.cma import cma as cma
from memes.emitters.compose import in_turn as in_turn
from memes.emitters.compose import one_of as one_of
from memes.emitters.compose import parallel as parallel
from memes.emitters.es import es as es
from memes.emitters.isoline import isoline as isoline
from memes.emitters.policy_gradient import policy_gradient as policy_gradient
from memes.emitters.population import by_novelty as by_novelty
from memes.emitters.population import population as population
