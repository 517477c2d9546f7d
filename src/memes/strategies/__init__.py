"""Search distributions that are batched over lanes."""

from memes.strategies.evosax import Evosax as Evosax
from memes.strategies.noise import Gaussian as Gaussian
from memes.strategies.noise import LowRank as LowRank
from memes.strategies.noise import Noise as Noise
from memes.strategies.openai_es import OpenAIES as OpenAIES
from memes.strategies.strategy import Strategy as Strategy
