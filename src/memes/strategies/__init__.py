"""Search distributions, batched over lanes."""

from memes.strategies.base import Strategy as Strategy
from memes.strategies.evosax import evosax as evosax
from memes.strategies.openai_es import openai_es as openai_es
