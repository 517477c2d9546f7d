"""The placement of a run: the assignment of its shards to devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from memes.algorithm import Algorithm, State
from memes.errors import require
from memes.runner.sharding import AXIS, Sharded

# `MOST_SHARDS` is more than the number of devices of any cluster.
MOST_SHARDS = 4096
# Arrays are either equal on all devices (replicated), or divided into one part per device (sharded).
REPLICATED, SHARDED = (PartitionSpec(*axes) for axes in ((), (AXIS,)))  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Placement:
    """The placement of a run.

    Attributes:
        shards: Number of shards.
        devices: The devices among which the shards are divided, in the order of the shards.
    """

    shards: int = 1
    devices: tuple[Any, ...] = ()

    @cached_property
    def mesh(self) -> Mesh:
        """The devices as a JAX mesh."""
        return Mesh(np.array(self.devices), (AXIS,))

    @property
    def waits(self) -> bool:
        """True if this process computes nothing, because none of its devices belongs to the run."""
        here = jax.process_index()
        return bool(self.devices) and all(device.process_index != here for device in self.devices)

    @property
    def local(self) -> bool:
        """True if the states in this process are not divided among shards."""
        return self.shards == 1 or self.waits

    @property
    def here(self) -> int:
        """Number of shards per device."""
        return self.shards // len(self.devices)

    def sharded(self, algorithm: Algorithm) -> Sharded:
        """Divide an algorithm among the shards."""
        return Sharded(algorithm, self.shards, max(1, len(self.devices)))

    def mapped(self, function: Callable[..., Any], arguments: Any, results: Any) -> Any:
        """Map a function over all devices, with the given partition specs of arguments and results."""
        # The check of `shard_map` is disabled, because JAX cannot infer that results computed from
        # gathered values are equal on all devices.
        return jax.shard_map(
            function, mesh=self.mesh, in_specs=arguments, out_specs=results, check_vma=False
        )

    def put(self, tree: PyTree, where: PyTree) -> PyTree:
        """Put a tree on the devices according to the partition specs in `where`."""

        def put_part(sharding: NamedSharding, part: PyTree) -> PyTree:
            return jax.tree.map(lambda leaf: _put(leaf, sharding), part)

        return jax.tree.map(put_part, self.shardings(where), tree)

    def shardings(self, where: PyTree) -> PyTree:
        """Convert the partition specs in `where` to JAX shardings."""
        is_spec: Callable[[Any], bool] = lambda part: isinstance(part, PartitionSpec)  # noqa: E731
        return jax.tree.map(lambda spec: NamedSharding(self.mesh, spec), where, is_leaf=is_spec)

    def of_state(self, algorithm: Algorithm, seeds: int) -> Any:
        """Return the placement of a state.

        Lanes or seeds are divided among the devices, and all other arrays are copied to every device.
        """
        if seeds > 1:
            return SHARDED
        divided = self.sharded(algorithm).part is not None
        everywhere: Any = REPLICATED
        return State(everywhere, everywhere, everywhere, everywhere, SHARDED if divided else everywhere)

    def recorded(self) -> dict[str, int]:
        """Return the entries of `config.json` that describe the placement."""
        return {"devices": max(1, len(self.devices)), "shards": self.shards}

    def on_first(self, state: State) -> State:
        """Return the state on the first device of this process."""
        if jax.process_count() > 1:
            state = self._everywhere(state)

        def own(leaf: Any) -> Any:
            return leaf.addressable_data(0) if leaf.is_fully_replicated else leaf

        local: State = jax.tree.map(own, state)
        return local

    def _everywhere(self, state: State) -> State:
        """Copy the sharded arrays of a state to all processes."""
        leaves, structure = jax.tree.flatten(state)
        apart = [leaf for leaf in leaves if not leaf.is_fully_replicated]
        if not apart:
            return state
        gathered = iter(self._gather(apart))
        whole = [leaf if leaf.is_fully_replicated else next(gathered) for leaf in leaves]
        return jax.tree.unflatten(structure, whole)  # type: ignore[no-any-return]

    @cached_property
    def _gather(self) -> Any:
        def gather(parts: list[Array]) -> list[Array]:
            return [jax.lax.all_gather(part, AXIS, tiled=True) for part in parts]

        return jax.jit(self.mapped(gather, (SHARDED,), REPLICATED))

    def in_words(self, kind: str) -> str:
        """Describe the devices in words. `kind` is the name of their type."""
        number, all_processes = len(self.devices), len(jax.devices())
        several = f"{number} x {kind}" if number > 1 else kind
        if jax.process_count() > 1 and number < all_processes:
            several = f"{several} (of {all_processes}: the others are idle)"
        return several if self.shards in (1, number) else f"{several}, in {self.shards} shards"

    def divides(self, algorithm: Algorithm, seeds: int) -> bool:
        """Return False if the shards divide only the evaluations, and not the lanes or seeds."""
        return self.shards == 1 or seeds > 1 or self.sharded(algorithm).part is not None


def _put(array: Any, sharding: NamedSharding) -> Array:
    """Put an array on the devices of all processes. All processes must have the same array."""
    if jax.process_count() == 1:
        return jax.device_put(array, sharding)  # type: ignore[no-any-return]
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        wrapped: Array = jax.random.wrap_key_data(_put(jax.random.key_data(array), sharding))
        return wrapped
    whole = np.asarray(array)
    spread: Array = jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])
    return spread


ALONE = Placement()  # one shard on JAX's first device


def placed(
    algorithm: Algorithm,
    devices: int | None,
    shards: int | None,
    seeds_per_batch: int,
) -> Placement:
    """Return the placement of a run on the requested number of devices and shards.

    By default, a run uses all accelerators, or one CPU if there are no accelerators. The default is one
    shard per device. A task that runs on the host has one shard.
    """
    found = jax.devices()
    if not algorithm.task.jit:
        whole = f"task '{algorithm.task.name}', which runs on the host"
        asked = {"devices": devices, "shards": shards, "processes": jax.process_count()}
        for name, value in asked.items():
            require(value in (None, 1), f"{name} must be 1 for {whole}, got {value}")
        return ALONE
    most = _usual(found) if shards is None or devices is not None else _divisor(shards, _usual(found))
    if shards is None and devices is None and seeds_per_batch > 1:
        most = min(most, seeds_per_batch)
    number = most if devices is None else devices
    require(
        number <= len(found),
        f"devices must be at most {len(found)}, the number that JAX has here, got {number}",
    )
    count = number if shards is None else shards
    require(count <= MOST_SHARDS, f"shards must be at most {MOST_SHARDS}, got {count}")
    require(count % number == 0, f"shards must be a multiple of devices, {number}, got {count}")
    return Placement(count, tuple(found[:number]))


def _usual(found: list[Any]) -> int:
    """Return the default number of devices, which is 1 on CPUs."""
    alone = found[0].platform == "cpu" and jax.process_count() == 1
    return 1 if alone else len(found)


def _divisor(number: int, most: int) -> int:
    return next(n for n in range(min(number, most), 0, -1) if number % n == 0)
