"""Training of TD3 in one CUDA kernel.

One kernel computes many training steps, because a single step is too small for a separate kernel.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from importlib import resources
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Key

from memes.control.mlp_kernels import ACTIVATIONS, Network
from memes.emitters.td3 import TD3, Learner, Replay, draw, learn, networks
from memes.kernels import cuda
from memes.kernels.cuda import Kernel
from memes.kernels.dispatch import choose
from memes.kernels.source import written
from memes.task import Task

# The kernel's maximum batch size, maximum layer width, and maximum count of random numbers per launch.
MOST_ROWS, MOST_WIDE, MOST_DRAWN = 1024, 1024, 2**25
CAPABILITY = 7.0  # the kernel's acquire and release operations need this compute capability


def train(key: Key[Array, ""], learner: Learner, replay: Replay, task: Task, settings: TD3) -> Learner:
    """Train the networks for one generation as `learn` does, but with the CUDA kernel if possible."""
    network = networks(task, settings)[2].controller.network
    by_kernel = None
    if network is not None and fits(network, settings):
        by_kernel = partial(learn_by_kernel, network=network, settings=settings)
    by_xla = partial(learn, task=task, settings=settings)
    train = choose(cuda=by_kernel, xla=by_xla, what="TD3's training", capability=CAPABILITY)
    return train(key, learner, replay)


def fits(network: Network, settings: TD3) -> bool:
    """Return True if the kernel can train these networks."""
    s, (critic, actor) = settings, shapes(network, settings)
    known = {network.hidden, network.output} <= set(ACTIVATIONS) and len(s.critic_hidden) > 0
    small = s.transitions_batch <= MOST_ROWS and max(*critic.widths, *actor.widths) <= MOST_WIDE
    if not known or not small:
        return False
    longest = max(8 * critic.starts()[-1], 4 * actor.starts()[-1], training_kernel(network, s)[1])
    return longest < 2**31  # the kernel's indices are of type int


def learn_by_kernel(
    key: Key[Array, ""],
    learner: Learner,
    replay: Replay,
    *,
    network: Network,
    settings: TD3,
    launch: Callable[..., list[Array]] = cuda.launch,
) -> Learner:
    """Train the networks as `learn` does, but with the CUDA kernel. `network` is the actor network."""
    s, a = settings, network.sizes[-1]
    rounds, delay = s.num_critic_training_steps // s.policy_delay, s.policy_delay
    together = min(rounds, max(1, MOST_DRAWN // (delay * s.transitions_batch * a)))
    critic, actor = shapes(network, s)
    critic_adam, actor_adam = learner.critic_optimiser[0], learner.actor_optimiser[0]
    kernel, work = training_kernel(network, s)

    def corrections(i: Array) -> Array:
        """Return Adam's bias corrections for `delay` critic steps and one actor step: [delay + 1, 2]."""
        critics = critic_adam.count + delay * i + jnp.arange(1, delay + 1)
        count = jnp.append(critics, actor_adam.count + i + 1)
        return jnp.stack([1 - decay**count for decay in (B1, B2)], axis=1)

    def some(turn: Array, nets: tuple[Array, Array]) -> tuple[Array, Array]:
        which = turn * together + jnp.arange(together)
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, which)
        index, noise = jax.vmap(lambda own: draw(own, replay, s))(keys)
        count = jnp.minimum(rounds - turn * together, together)[None]
        rows, barrier = replay.rows, jnp.zeros(1, jnp.uint32)
        drawn = (index, noise, jax.vmap(corrections)(which), count)
        seen = (rows.observation, rows.action, rows.reward, rows.next_observation, rows.ended)
        given = [*seen, *drawn, *nets, barrier]
        results = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (*nets, barrier)]  # type: ignore[no-untyped-call]
        results.append(jax.ShapeDtypeStruct((work,), jnp.float32))  # type: ignore[no-untyped-call]
        made = launch(
            kernel, given, results, blocks=1024, threads=256, aliases={9: 0, 10: 1, 11: 2}, at_once=True
        )
        return made[0], made[1]

    nets = (
        critic.filled(
            jnp.stack([learner.critics, critic_adam.mu, critic_adam.nu, learner.target_critics])
        ),
        actor.filled(jnp.stack([learner.actor, actor_adam.mu, actor_adam.nu, learner.target_actor])),
    )
    critics, actors = jax.lax.fori_loop(0, -(-rounds // together), some, nets)
    critics, actors = critic.taken(critics), actor.taken(actors)

    def after(optimiser: Any, steps: int, mu: Array, nu: Array) -> Any:
        state, *rest = optimiser
        return (state._replace(count=state.count + steps, mu=mu, nu=nu), *rest)

    return Learner(
        critics=critics[0],
        actor=actors[0],
        target_critics=critics[3],
        target_actor=actors[3],
        critic_optimiser=after(learner.critic_optimiser, rounds * delay, *critics[1:3]),
        actor_optimiser=after(learner.actor_optimiser, rounds, *actors[1:3]),
    )


# --------------------------------------------------------------------------------------------- sources

B1, B2, EPSILON = 0.9, 0.999, 1e-8  # these are the defaults of `optax.adam`, which `learn` uses


def up(size: int) -> int:
    """Round up to a multiple of 32, the width of the kernel's tiles."""
    return -(-size // 32) * 32


class _Shape(NamedTuple):
    """The sizes of a network's layers (`sizes`), and the sizes after padding with zeros (`widths`)."""

    sizes: tuple[int, ...]
    widths: tuple[int, ...]

    def blocks(self) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        """Yield the unpadded and padded shapes of each layer's matrix and bias."""
        layers = zip(itertools.pairwise(self.sizes), itertools.pairwise(self.widths), strict=True)
        for (rows, columns), (high, wide) in layers:
            yield (rows, columns), (high, wide)
            yield (1, columns), (1, up(wide))

    def filled(self, x: Float[Array, "*n d"]) -> Float[Array, "*n e"]:
        parts, start = [], 0
        for (rows, columns), (high, wide) in self.blocks():
            part = x[..., start : start + rows * columns].reshape(*x.shape[:-1], rows, columns)
            start += rows * columns
            room = [(0, 0)] * (x.ndim - 1) + [(0, high - rows), (0, wide - columns)]
            parts.append(jnp.pad(part, room).reshape(*x.shape[:-1], high * wide))
        return jnp.concatenate(parts, axis=-1)

    def taken(self, x: Float[Array, "*n e"]) -> Float[Array, "*n d"]:
        """Remove the padding that `filled` adds."""
        parts = []
        for start, ((rows, columns), (high, wide)) in zip(self.starts(), self.blocks(), strict=False):
            part = x[..., start : start + high * wide].reshape(*x.shape[:-1], high, wide)
            parts.append(part[..., :rows, :columns].reshape(*x.shape[:-1], rows * columns))
        return jnp.concatenate(parts, axis=-1)

    def starts(self) -> list[int]:
        """Return the offset of each padded matrix or bias, followed by the total size."""
        return list(itertools.accumulate((high * wide for _, (high, wide) in self.blocks()), initial=0))


def shapes(network: Network, settings: TD3) -> tuple[_Shape, _Shape]:
    """Return the layer sizes of a critic, and those of the actor."""
    o, a = network.sizes[0], network.sizes[-1]
    hidden = settings.critic_hidden
    critic = _Shape((o + a, *hidden, 1), (up(o + a), *map(up, hidden), 1))
    return critic, _Shape(network.sizes, tuple(map(up, network.sizes)))


def training_kernel(network: Network, settings: TD3) -> tuple[Kernel, int]:
    """Return the kernel, and the size of the buffer that the blocks of the kernel share."""
    s, (critic, actor) = settings, shapes(network, settings)
    rows, wide = up(s.transitions_batch), critic.widths
    behind = [0, *itertools.accumulate(wide[1:-1], initial=0)]  # offsets of signals
    actor_behind = list(itertools.accumulate(actor.widths, initial=0))
    tiles = wide[-2] // 32
    work = s.policy_delay * rows * (2 * wide[0] + 2)
    work += rows * (wide[0] + 6 * behind[-1] + 4 * tiles + 2 * actor_behind[-1])
    tables = {
        "WIDTHS": wide[:-1],
        "MATRICES": critic.starts()[:-1:2],
        "BIASES": critic.starts()[1::2],
        "BEFORE": behind,
        "ACTOR_WIDTHS": actor.widths,
        "ACTOR_MATRICES": actor.starts()[:-1:2],
        "ACTOR_BIASES": actor.starts()[1::2],
        "ACTOR_BEFORE": actor_behind,
    }
    numbers = {
        "RATE": s.critic_learning_rate,
        "ACTOR_RATE": s.greedy_learning_rate,
        "DISCOUNT": s.discount,
        "FOLLOW": s.soft_update,
        "B1": B1,
        "B2": B2,
        "B1_REST": 1 - B1,
        "B2_REST": 1 - B2,
        "EPSILON": EPSILON,
    }
    files = resources.files("memes.emitters")
    source = written(
        (files / "training.cu").read_text(),
        PRODUCTS=(files / "products.cu").read_text(),
        OBSERVATION=network.sizes[0],
        ACTION=network.sizes[-1],
        BATCH=s.transitions_batch,
        ROWS=rows,
        DELAY=s.policy_delay,
        LAYERS=len(s.critic_hidden),
        ACTOR_LAYERS=len(network.sizes) - 1,
        CRITIC=critic.starts()[-1],
        ACTOR=actor.starts()[-1],
        WIDEST=max(*actor.widths, wide[1]),
        IN=wide[0],
        TILES=tiles,
        SIGNALS=behind[-1],
        ACTOR_SIGNALS=actor_behind[-1],
        HIDDEN=ACTIVATIONS[network.hidden],
        OUTPUT=ACTIVATIONS[network.output],
        **{name: ", ".join(map(str, table)) for name, table in tables.items()},
        **{name: f"{float(np.float32(x)).hex()}f" for name, x in numbers.items()},
    )
    return Kernel(source, "training"), work
