"""Backends, which execute the simulation on different platforms.

All backends trace the same function `step`, each with its own type of data:

    numpy    float64 arrays, the reference for tests
    xla      JAX arrays, for every platform
    cuda     one CUDA kernel for all substeps, for NVIDIA GPUs (`cuda_backend.py`)
    native   vectorised C++, for CPUs (`native.py`)

Internally, a state is a matrix [R, N] with one column per robot. A slot is an entry of qpos, of qvel or
of the warm start. A slot that stands for the same entry in K isomorphic subtrees has K rows. All other
slots have one row.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from memes.physics import step as stepping
from memes.physics.algebra import Operations, Scalar, Value
from memes.physics.solver import (
    UNROLLED,
    Body,
    ControlFlow,
    Fidelity,
    Scalars,
    always,
)
from memes.physics.stacking import Layout, Slots, StackedModel
from memes.physics.step import Phase

# A function `(rows[R, N], flags[N], ctrl[N, nu]) -> (rows, flags)` that advances robots. It does not
# change the rows of failed robots.
Advance = Callable[[Any, Any, Any], tuple[Any, Any]]


class Packing(NamedTuple):
    """The rows of a state: `(first row, number of rows)` for each slot, and the total number of rows."""

    qpos: tuple[tuple[int, int], ...]
    qvel: tuple[tuple[int, int], ...]
    warm: tuple[tuple[int, int], ...]
    rows: int


def packing(layout: Layout) -> Packing:
    """Assign consecutive rows to the slots."""
    qpos, end = _spans(layout.qpos, 0)
    qvel, end = _spans(layout.dofs, end)
    warm, end = _spans(layout.dofs, end)
    return Packing(qpos, qvel, warm, end)


def _spans(slots: Slots, start: int) -> tuple[tuple[tuple[int, int], ...], int]:
    spans = []
    for slot in slots:
        spans.append((start, len(slot)))
        start += len(slot)
    return tuple(spans), start


def array_operations(xp: Any, copies: int, n: int) -> Operations:
    """Return operations on arrays, which have shape [K, N] for stacked subtrees, and [N] otherwise."""

    def total(data: Any) -> Any:
        return xp.sum(data, axis=0) if data.ndim == 2 else copies * data

    def fill(data: Any, stacked: bool) -> Any:
        return xp.broadcast_to(xp.asarray(data), (copies, n) if stacked else (n,))

    def lift(values: np.ndarray) -> Any:
        return np.asarray(values, np.float64 if xp is np else np.float32)[:, None]

    return Operations(
        divide=operator.truediv,
        sin=xp.sin,
        cos=xp.cos,
        sqrt=xp.sqrt,
        abs=xp.abs,
        minimum=xp.minimum,
        maximum=xp.maximum,
        where=xp.where,
        lift=lift,
        total=total,
        fill=fill,
    )


def one_step(
    stacked: StackedModel,
    fidelity: Fidelity,
    of: Operations,
    control: ControlFlow,
    state: Sequence[Any],
    controls: Sequence[Any],
) -> list[Any]:
    """Compute one timestep from the data of all slots."""
    nq, nv = stacked.model.nq, stacked.model.nv
    values: list[Scalar] = [Value(x, of) for x in state]
    phase = Phase(values[:nq], values[nq : nq + nv], values[nq + nv :])
    ctrl: list[Scalar] = [Value(x, of) for x in controls]
    after = stepping.step(stacked.model, stacked.tree, phase, ctrl, fidelity, control)
    layout = stacked.layout
    flags = [len(slot) > 1 for slot in (*layout.qpos, *layout.dofs, *layout.dofs)]
    return _full([*after.qpos, *after.qvel, *after.warm], flags, of)


def _full(scalars: Sequence[Scalar], stacked: Sequence[bool], of: Operations) -> list[Any]:
    """Expand the data of each scalar to shape [K, N] if it is stacked, and to shape [N] otherwise."""
    raw: list[Any] = [x.data if isinstance(x, Value) else x for x in scalars]
    return [of.fill(x, flag) for x, flag in zip(raw, stacked, strict=True)]


def rolled(of: Operations) -> ControlFlow:
    """Return a `ControlFlow` that runs repeated code in XLA loops, so that the program remains short."""

    def repeat(count: int, body: Body, start: Scalars, flags: Sequence[bool]) -> Scalars:
        def once(_: Any, data: list[Any]) -> list[Any]:
            return _full(body([Value(x, of) for x in data]), flags, of)

        return [Value(x, of) for x in jax.lax.fori_loop(0, count, once, _full(start, flags, of))]

    return ControlFlow(repeat, always)


def numpy_backend(stacked: StackedModel, fidelity: Fidelity, substeps: int) -> Advance:
    """Return the reference backend, which uses float64 arrays of NumPy."""
    layout = packing(stacked.layout)

    def advance(before: np.ndarray, flags: np.ndarray, ctrl: np.ndarray) -> Any:
        rows = before
        of = array_operations(np, stacked.tree.copies, rows.shape[1])
        controls = _controls(np, ctrl, stacked.layout)
        for _ in range(substeps):
            state = _read(rows, layout.qpos + layout.qvel + layout.warm)
            after = one_step(stacked, fidelity, of, UNROLLED, state, controls)
            rows = np.concatenate([np.atleast_2d(x) for x in after])
        return _freeze(np, before, rows, flags)

    return advance


def xla_backend(stacked: StackedModel, fidelity: Fidelity, substeps: int) -> Advance:
    """Return the backend in plain JAX."""
    layout = packing(stacked.layout)

    def advance(rows: Array, flags: Array, ctrl: Array) -> Any:
        of = array_operations(jnp, stacked.tree.copies, rows.shape[1])
        controls = _controls(jnp, ctrl, stacked.layout)

        def once(_: Any, rows: Array) -> Array:
            state = _read(rows, layout.qpos + layout.qvel + layout.warm)
            after = one_step(stacked, fidelity, of, rolled(of), state, controls)
            return jnp.concatenate([x if x.ndim == 2 else x[None] for x in after])

        return _freeze(jnp, rows, jax.lax.fori_loop(0, substeps, once, rows), flags)

    return advance


def _freeze(xp: Any, before: Any, after: Any, flags: Any) -> tuple[Any, Any]:
    """Flag robots that fail in this step, and restore the previous rows of all failed robots."""
    failed = (flags > 0) | ~xp.all(xp.isfinite(after), axis=0)
    return xp.where(failed, before, after), failed.astype(flags.dtype)


def _read(rows: Any, spans: Sequence[tuple[int, int]]) -> list[Any]:
    return [rows[first] if size == 1 else rows[first : first + size] for first, size in spans]


def _controls(xp: Any, ctrl: Any, layout: Layout) -> list[Any]:
    """Return one array [N] per control. K stacked controls share one array [K, N]."""
    return [
        ctrl[:, slot[0]] if len(slot) == 1 else xp.stack([ctrl[:, i] for i in slot])
        for slot in layout.controls
    ]
