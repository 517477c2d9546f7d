"""One trace, several ways to run it.

Every backend traces the same `step` with its own kind of data:

    numpy    float64 arrays: the reference for tests
    xla      JAX arrays, on every platform
    pallas   one Triton kernel for all substeps, on NVIDIA GPUs

Inside, a state is a matrix of rows [R, N]: the slots of qpos, of qvel and of the warm start, each with
one row for each of its copies. The batch is the last axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental import pallas as pl

from memes.physics import step as stepping
from memes.physics.algebra import Operations, Scalar, Value
from memes.physics.solver import Fidelity, Iterate, flatten, restore
from memes.physics.stacking import Layout, Slots, StackedModel
from memes.physics.step import Phase

# (rows[R, N], failed[N], controls[C, N]) -> (rows, failed). Robots that fail keep their last rows.
Advance = Callable[[Any, Any, Any], tuple[Any, Any]]


class Packing(NamedTuple):
    """Which rows belong to which scalar: `(first row, number of rows)` for each slot."""

    qpos: tuple[tuple[int, int], ...]
    qvel: tuple[tuple[int, int], ...]
    warm: tuple[tuple[int, int], ...]
    controls: tuple[tuple[int, int], ...]
    rows: int


def packing(layout: Layout) -> Packing:
    """Lay the slots out one after the other."""
    qpos, end = _spans(layout.qpos, 0)
    qvel, end = _spans(layout.dofs, end)
    warm, end = _spans(layout.dofs, end)
    controls, _ = _spans(layout.controls, 0)
    return Packing(qpos, qvel, warm, controls, end)


def _spans(slots: Slots, start: int) -> tuple[tuple[tuple[int, int], ...], int]:
    spans = []
    for slot in slots:
        spans.append((start, len(slot)))
        start += len(slot)
    return tuple(spans), start


def array_operations(xp: Any, copies: int, n: int) -> Operations:
    """Operations on arrays: data of the trunk is [N], data of stacked parts [K, N]."""

    def total(data: Any) -> Any:
        return xp.sum(data, axis=0) if data.ndim == 2 else copies * data

    def fill(data: Any, stacked: bool) -> Any:
        return xp.broadcast_to(xp.asarray(data), (copies, n) if stacked else (n,))

    def lift(values: np.ndarray) -> Any:
        return np.asarray(values, np.float64 if xp is np else np.float32)[:, None]

    return Operations(
        xp.sin, xp.cos, xp.sqrt, xp.abs, xp.minimum, xp.maximum, xp.where, lift, total, fill
    )


def _one_step(
    stacked: StackedModel,
    fidelity: Fidelity,
    of: Operations,
    repeat: Any,
    state: Sequence[Any],
    controls: Sequence[Any],
) -> list[Any]:
    """One timestep on the data of every slot."""
    nq, nv = stacked.model.nq, stacked.model.nv
    values: list[Scalar] = [Value(x, of) for x in state]
    phase = Phase(values[:nq], values[nq : nq + nv], values[nq + nv :])
    ctrl: list[Scalar] = [Value(x, of) for x in controls]
    after = stepping.step(stacked.model, stacked.tree, phase, ctrl, fidelity, repeat(stacked, of))
    flags = _slot_flags(stacked)
    return _full([*after.qpos, *after.qvel, *after.warm], flags, of)


def _slot_flags(stacked: StackedModel) -> list[bool]:
    layout = stacked.layout
    return [len(slot) > 1 for slot in (*layout.qpos, *layout.dofs, *layout.dofs)]


def _full(scalars: Sequence[Scalar], stacked: Sequence[bool], of: Operations) -> list[Any]:
    """Scalars as data of full shape."""
    raw: list[Any] = [x.data if isinstance(x, Value) else x for x in scalars]
    return [of.fill(x, flag) for x, flag in zip(raw, stacked, strict=True)]


def _unrolled(stacked: StackedModel, of: Operations) -> Any:
    del stacked, of

    def repeat(count: int, body: Callable[[Iterate], Iterate], start: Iterate) -> Iterate:
        for _ in range(count):
            start = body(start)
        return start

    return repeat


def _rolled(stacked: StackedModel, of: Operations) -> Any:
    """Newton iterations as a loop of the compiler, which keeps the program short."""

    def repeat(count: int, body: Callable[[Iterate], Iterate], start: Iterate) -> Iterate:
        dofs = stacked.tree.stacked
        sizes = zip(_row_flags(stacked), start.components, strict=True)
        flags = [*dofs, *dofs, *(flag for flag, u in sizes for _ in u)]

        def once(_: Any, data: list[Any]) -> list[Any]:
            at = restore([Value(x, of) for x in data], start)
            return _full(flatten(body(at)), flags, of)

        found = jax.lax.fori_loop(0, count, once, _full(flatten(start), flags, of))
        return restore([Value(x, of) for x in found], start)

    return repeat


def _row_flags(stacked: StackedModel) -> list[bool]:
    """Which constraint rows are stacked, in the order of `constraint_rows`."""
    model, tree = stacked.model, stacked.tree
    contacts = [tree.stacked_link[c.link] for c in model.contacts]
    limits = [
        flag
        for link, flag in zip(model.links, tree.stacked_link, strict=True)
        for joint in link.joints
        if joint.limit is not None
    ]
    return contacts + limits


def numpy_backend(stacked: StackedModel, fidelity: Fidelity, substeps: int) -> Advance:
    """The reference: float64, one array operation after the other."""
    layout = packing(stacked.layout)

    def advance(before: np.ndarray, failed: np.ndarray, controls: np.ndarray) -> Any:
        rows = before
        of = array_operations(np, stacked.tree.copies, rows.shape[1])
        ctrl = _read(controls, layout.controls)
        for _ in range(substeps):
            state = _read(rows, layout.qpos + layout.qvel + layout.warm)
            after = _one_step(stacked, fidelity, of, _unrolled, state, ctrl)
            rows = np.concatenate([np.atleast_2d(x) for x in after])
        return _freeze(np, before, rows, failed)

    return advance


def xla_backend(stacked: StackedModel, fidelity: Fidelity, substeps: int) -> Advance:
    """Plain JAX."""
    layout = packing(stacked.layout)

    def advance(rows: Array, failed: Array, controls: Array) -> Any:
        of = array_operations(jnp, stacked.tree.copies, rows.shape[1])
        ctrl = _read(controls, layout.controls)

        def once(_: Any, rows: Array) -> Array:
            state = _read(rows, layout.qpos + layout.qvel + layout.warm)
            after = _one_step(stacked, fidelity, of, _rolled, state, ctrl)
            return jnp.concatenate([x if x.ndim == 2 else x[None] for x in after])

        return _freeze(jnp, rows, jax.lax.fori_loop(0, substeps, once, rows), failed)

    return advance


def _freeze(xp: Any, before: Any, after: Any, failed: Any) -> tuple[Any, Any]:
    """Keep the rows of robots that have failed, now or earlier."""
    failed = failed | ~xp.all(xp.isfinite(after), axis=0)
    return xp.where(failed, before, after), failed


def _read(rows: Any, spans: Sequence[tuple[int, int]]) -> list[Any]:
    return [rows[first] if size == 1 else rows[first : first + size] for first, size in spans]


# ------------------------------------------------------------------------------------------ pallas


def padded(stacked: StackedModel) -> StackedModel:
    """The model with its copies filled up to a power of two, which Triton's blocks must have.

    The added copies repeat the first one; `pallas_backend` leaves them out of every sum.
    """
    copies = stacked.tree.copies
    size = 1 << (copies - 1).bit_length()

    def fill(slots: Slots) -> Slots:
        return tuple(slot if len(slot) == 1 else slot + slot[:1] * (size - len(slot)) for slot in slots)

    layout = stacked.layout
    return stacked._replace(layout=Layout(fill(layout.qpos), fill(layout.dofs), fill(layout.controls)))


def pallas_backend(
    stacked: StackedModel, fidelity: Fidelity, substeps: int, *, interpret: bool = False
) -> Advance:
    """All substeps in one kernel: a warp simulates a few robots, and nothing leaves its registers.

    Each thread block holds an array [K, B] for every scalar, K copies of B robots; scalars of the trunk
    are the same in all K rows. `stacked` must be `padded`.
    """
    from jax.experimental.pallas import triton

    layout = packing(stacked.layout)
    copies = stacked.tree.copies
    constants = _stacked_constants(stacked, fidelity)
    height = max((size for _, size in layout.qpos + layout.qvel), default=1)
    block = max(1, 32 // height)

    def kernel(x_ref: Any, failed_ref: Any, c_ref: Any, out_ref: Any, out_failed_ref: Any) -> None:
        of = _kernel_operations(constants, copies, height, block)

        def load(ref: Any, spans: Sequence[tuple[int, int]]) -> list[Any]:
            return [
                jnp.broadcast_to(ref[first, :][None], (height, block))
                if size == 1
                else ref[first : first + size, :]
                for first, size in spans
            ]

        spans = layout.qpos + layout.qvel + layout.warm
        ctrl = load(c_ref, layout.controls)

        def once(_: Any, state: list[Any]) -> list[Any]:
            return _one_step(stacked, fidelity, of, _rolled, state, ctrl)

        after = jax.lax.fori_loop(0, substeps, once, load(x_ref, spans))
        # Zero times something non-finite is NaN, and so is its sum over everything.
        sound = of.total(sum(x * 0.0 for x in after)) == 0.0
        alive = sound & (jnp.broadcast_to(failed_ref[...][None], (height, block)) == 0.0)
        out_failed_ref[...] = jnp.max(jnp.where(alive, 0.0, 1.0), axis=0)
        # The old rows are read again: keeping them would cost registers all the way through.
        for (first, size), old, new in zip(spans, load(x_ref, spans), after, strict=True):
            kept = jnp.where(alive, new, old)
            if size == 1:
                out_ref[first, :] = jnp.max(kept, axis=0)
            else:
                out_ref[first : first + size, :] = kept

    def advance(rows: Array, failed: Array, controls: Array) -> Any:
        n = rows.shape[1]
        if not layout.controls:  # a block cannot be empty
            controls = jnp.zeros((1, n))
        flags = failed.astype(jnp.float32)
        extra = -n % block
        if extra:  # the last block is filled up with copies of the first robot
            rows, controls, flags = (
                jnp.concatenate([x, jnp.broadcast_to(x[..., :1], (*x.shape[:-1], extra))], axis=-1)
                for x in (rows, controls, flags)
            )
        whole = rows.shape[1]

        def spec(height: int) -> pl.BlockSpec:
            return pl.BlockSpec((height, block), lambda i: (0, i))

        flag_spec = pl.BlockSpec((block,), lambda i: (i,))
        rows, flags = pl.pallas_call(
            kernel,
            grid=(whole // block,),
            in_specs=[spec(layout.rows), flag_spec, spec(controls.shape[0])],
            out_specs=[spec(layout.rows), flag_spec],
            out_shape=[
                jax.ShapeDtypeStruct((layout.rows, whole), jnp.float32),  # type: ignore[no-untyped-call]
                jax.ShapeDtypeStruct((whole,), jnp.float32),  # type: ignore[no-untyped-call]
            ],
            compiler_params=triton.CompilerParams(num_warps=1, num_stages=1),
            interpret=interpret,
        )(rows, flags, controls)
        return rows[:, :n], flags[:n] > 0

    return advance


def _stacked_constants(stacked: StackedModel, fidelity: Fidelity) -> list[tuple[float, ...]]:
    """The stacked constants that a step uses, found by a trace on NumPy arrays of one robot."""
    seen: dict[tuple[float, ...], None] = {}
    of = array_operations(np, stacked.tree.copies, 1)

    def lift(values: np.ndarray) -> Any:
        seen[tuple(float(v) for v in values)] = None
        return of.lift(values)

    shapes = [(stacked.tree.copies, 1) if flag else (1,) for flag in _slot_flags(stacked)]
    controls = [(len(set(slot)), 1) if len(slot) > 1 else (1,) for slot in stacked.layout.controls]
    with np.errstate(all="ignore"):
        _one_step(
            stacked,
            fidelity._replace(iterations=1),
            of._replace(lift=lift),
            _unrolled,
            [np.ones(shape) for shape in shapes],
            [np.ones(shape) for shape in controls],
        )
    return list(seen)


def _kernel_operations(
    constants: list[tuple[float, ...]], copies: int, height: int, block: int
) -> Operations:
    """Operations inside the kernel, on arrays [K, B] throughout.

    Stacked constants are made once, up here, and not inside the loops that use them.
    """
    shape = (height, block)
    row = jax.lax.broadcasted_iota(jnp.int32, shape, 0)
    lifted: dict[tuple[float, ...], Any] = {}
    for key in constants:
        lifted[key] = jnp.full(shape, key[0], jnp.float32)
        for k in range(1, copies):
            lifted[key] = jnp.where(row == k, jnp.float32(key[k]), lifted[key])

    def lift(values: np.ndarray) -> Any:
        return lifted[tuple(float(v) for v in values)]

    def total(data: Any) -> Any:
        kept = data if copies == height else jnp.where(row < copies, data, 0.0)
        return jnp.broadcast_to(jnp.sum(kept, axis=0, keepdims=True), shape)

    def fill(data: Any, stacked: bool) -> Any:
        del stacked
        return jnp.broadcast_to(jnp.asarray(data, jnp.float32), shape)

    return Operations(
        _sin, _cos, jnp.sqrt, jnp.abs, jnp.minimum, jnp.maximum, jnp.where, lift, total, fill
    )


# Sine and cosine by one reduction to half the angle and two polynomials: a third of the instructions of
# the library's, which are made for angles of any size. Accurate to 3e-7 up to some thousand turns.
_SIN_HALF = (1.0, -1.66666667e-1, 8.33333333e-3, -1.98412698e-4, 2.75573192e-6, -2.50521e-8)
_COS_HALF = (1.0, -0.5, 4.16666667e-2, -1.38888889e-3, 2.48015873e-5, -2.7557319e-7)


def _half_angle(x: Any) -> tuple[Any, Any]:
    """Half of the angle in [-pi/2, pi/2], and its square."""
    turns = jnp.floor(x * 0.15915494309189535 + 0.5)
    half = 0.5 * ((x - turns * 6.28125) - turns * 1.9353071795864769e-3)
    return half, half * half


def _polynomial(coefficients: Sequence[float], x: Any) -> Any:
    total = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        total = coefficient + x * total
    return total


def _sin(x: Any) -> Any:
    half, square = _half_angle(x)
    return 2.0 * (half * _polynomial(_SIN_HALF, square)) * _polynomial(_COS_HALF, square)


def _cos(x: Any) -> Any:
    half, square = _half_angle(x)
    sine = half * _polynomial(_SIN_HALF, square)
    return 1.0 - 2.0 * (sine * sine)
