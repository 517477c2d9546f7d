"""All substeps in one Triton kernel, for NVIDIA GPUs."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental import pallas as pl

from memes.physics.algebra import Operations
from memes.physics.backends import (
    Advance,
    array_operations,
    one_step,
    packing,
    rolled,
    slot_flags,
    unrolled,
)
from memes.physics.solver import Fidelity
from memes.physics.stacking import Layout, Slots, StackedModel

# Warps in a thread block. They run through the same long program: in step they fetch it once.
WARPS = 4


def padded(stacked: StackedModel) -> StackedModel:
    """The model with its copies filled up to a power of two, which Triton's blocks must have.

    The added copies repeat the first one; `pallas_backend` leaves them out of every sum.
    """
    copies = stacked.tree.copies
    size = pl.next_power_of_2(copies)

    def fill(slots: Slots) -> Slots:
        return tuple(slot if len(slot) == 1 else slot + slot[:1] * (size - len(slot)) for slot in slots)

    layout = stacked.layout
    return stacked._replace(layout=Layout(fill(layout.qpos), fill(layout.dofs), fill(layout.controls)))


def pallas_backend(
    stacked: StackedModel, fidelity: Fidelity, substeps: int, *, interpret: bool = False
) -> Advance:
    """All substeps in one kernel: a warp simulates a few robots, and nothing leaves its registers.

    Each thread block holds an array [W, K, B] for every scalar, in each of W warps K copies of B robots;
    scalars of the trunk are the same in all K rows. `stacked` must be `padded`.
    """
    from jax.experimental.pallas import triton

    layout = packing(stacked.layout)
    copies = stacked.tree.copies
    constants = _stacked_constants(stacked, fidelity)
    spans = layout.qpos + layout.qvel + layout.warm
    height = max((size for _, size in spans), default=1)
    shape = (WARPS, height, max(1, 32 // height))
    block = shape[0] * shape[2]  # robots

    def kernel(x_ref: Any, failed_ref: Any, c_ref: Any, out_ref: Any, out_failed_ref: Any) -> None:
        of = _kernel_operations(constants, copies, shape, interpret)
        places = _places(spans, shape)
        ctrl = _split(c_ref[_places(layout.controls or ((0, 1),), shape)], len(layout.controls))

        def once(_: Any, state: list[Any]) -> list[Any]:
            return one_step(stacked, fidelity, of, rolled, state, ctrl)

        after = jax.lax.fori_loop(0, substeps, once, _split(x_ref[places], len(spans)))
        # Zero times something non-finite is NaN, and so is its sum over everything.
        sound = of.total(sum(x * 0.0 for x in after)) == 0.0
        column = _column(shape)
        alive = sound & (jnp.broadcast_to(failed_ref[column], shape) == 0.0)
        out_failed_ref[column[:, 0]] = jnp.max(jnp.where(alive, 0.0, 1.0), axis=1)
        # The old rows are read again: keeping them would cost registers all the way through.
        out_ref[places] = jnp.where(alive, _join(after), x_ref[places])

    def advance(rows: Array, flags: Array, controls: Array) -> Any:
        n = rows.shape[1]
        if not layout.controls:  # a block cannot be empty
            controls = jnp.zeros((1, n))
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
            # The state is updated in place: in a scan, XLA need not copy it between steps.
            input_output_aliases={0: 0, 1: 1},
            compiler_params=triton.CompilerParams(num_warps=WARPS, num_stages=1),
            interpret=interpret,
        )(rows, flags, controls)
        return rows[:, :n], flags[:n]

    return advance


# Triton's time to compile grows with the number of loads and stores times the square of what depends on
# them, here the whole kernel. So all scalars are read as one array [S, W, K, B] of S slots, and written
# as one. S is a power of two; the slots that fill it up repeat the first one.


def _iota(shape: tuple[int, ...], axis: int) -> Array:
    return jax.lax.broadcasted_iota(jnp.int32, shape, axis)


def _column(shape: tuple[int, int, int]) -> Array:
    """Which robot of the block each thread has, [W, 1, B]: in falling order.

    In rising order Triton would see neighbours and have each thread read four of them, and then keep
    every scalar of all four in each thread.
    """
    warps, _, robots = shape
    each = (warps, 1, robots)
    return warps * robots - 1 - robots * _iota(each, 0) - _iota(each, 2)


def _places(spans: Sequence[tuple[int, int]], shape: tuple[int, int, int]) -> tuple[Array, Array]:
    """Rows [S, 1, K, 1] and columns [1, W, 1, B] of every slot; trunk scalars are read K times."""
    copy = _iota((1, shape[1], 1), 1)
    rows = [first + (copy if size > 1 else jnp.zeros_like(copy)) for first, size in spans]
    return _join(rows), _column(shape)[None]


def _split(data: Array, count: int) -> list[Array]:
    """The first slots of an array [S, W, K, B], each [W, K, B]."""
    slot = _iota(data.shape, 0)
    return [jnp.sum(jnp.where(slot == i, data, 0.0), axis=0) for i in range(count)]


def _join(slots: list[Array]) -> Array:
    """The inverse."""
    shape = (pl.next_power_of_2(len(slots)), *slots[0].shape)
    slot, data = _iota(shape, 0), jnp.broadcast_to(slots[0], shape)
    for i, x in enumerate(slots[1:], 1):
        data = jnp.where(slot == i, x, data)
    return data


def _stacked_constants(stacked: StackedModel, fidelity: Fidelity) -> list[tuple[float, ...]]:
    """The stacked constants that a step uses, found by a trace on NumPy arrays of one robot."""
    seen: dict[tuple[float, ...], None] = {}
    of = array_operations(np, stacked.tree.copies, 1)

    def lift(values: np.ndarray) -> Any:
        seen[tuple(float(v) for v in values)] = None
        return of.lift(values)

    shapes = [(stacked.tree.copies, 1) if flag else (1,) for flag in slot_flags(stacked)]
    controls = [(len(set(slot)), 1) if len(slot) > 1 else (1,) for slot in stacked.layout.controls]
    with np.errstate(all="ignore"):
        one_step(
            stacked,
            fidelity._replace(iterations=1),
            of._replace(lift=lift),
            unrolled,
            [np.ones(shape) for shape in shapes],
            [np.ones(shape) for shape in controls],
        )
    return list(seen)


def _kernel_operations(
    constants: list[tuple[float, ...]], copies: int, shape: tuple[int, int, int], interpret: bool
) -> Operations:
    """Operations inside the kernel, on arrays [W, K, B] throughout.

    Stacked constants are made once, up here, and not inside the loops that use them.
    """
    row = _iota(shape, 1)
    lifted: dict[tuple[float, ...], Any] = {}
    for key in constants:
        lifted[key] = jnp.full(shape, key[0], jnp.float32)
        for k in range(1, copies):
            lifted[key] = jnp.where(row == k, jnp.float32(key[k]), lifted[key])

    def lift(values: np.ndarray) -> Any:
        return lifted[tuple(float(v) for v in values)]

    def total(data: Any) -> Any:
        kept = data if copies == shape[1] else jnp.where(row < copies, data, 0.0)
        return jnp.broadcast_to(jnp.sum(kept, axis=1, keepdims=True), shape)

    def fill(data: Any, stacked: bool) -> Any:
        del stacked
        return jnp.broadcast_to(jnp.asarray(data, jnp.float32), shape)

    return Operations(
        divide=operator.truediv if interpret else _divide,
        sin=_sin,
        cos=_cos,
        sqrt=jnp.sqrt,
        abs=jnp.abs,
        minimum=jnp.minimum,
        maximum=jnp.maximum,
        where=jnp.where,
        lift=lift,
        total=total,
        fill=fill,
    )


def _divide(a: Any, b: Any) -> Any:
    """A / b by one instruction for 1 / b, to 1 ulp, instead of seven that also take b near 2^128."""
    from jax.experimental.pallas import triton

    (inverse,) = triton.elementwise_inline_asm(
        "rcp.approx.ftz.f32 $0, $1;",
        args=[b],
        constraints="=r,r",
        pack=1,
        result_shape_dtypes=[jax.ShapeDtypeStruct(b.shape, b.dtype)],  # type: ignore[no-untyped-call]
    )
    return a * inverse


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
