"""The `cuda` backend, which executes all substeps in one CUDA kernel on NVIDIA GPUs.

A thread simulates one leg of one robot. Shuffles between adjacent threads compute sums over the legs.
All data stay in registers until the last substep.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from memes.errors import require
from memes.kernels import cuda
from memes.kernels.cuda import Kernel
from memes.physics.backends import Advance, packing
from memes.physics.emit import emit, simulator
from memes.physics.solver import Fidelity
from memes.physics.stacking import StackedModel

THREADS = 128  # threads per block; the four warps of a block share instruction fetches
WARP = 32


def cuda_backend(
    stacked: StackedModel,
    fidelity: Fidelity,
    substeps: int,
    *,
    launch: Callable[..., list[Array]] | None = None,
) -> Advance:
    """Return the CUDA backend, which updates the state in place."""
    if launch is None:
        require(bool(cuda.devices()), "backend 'cuda' needs an NVIDIA GPU that JAX can use, found none")
        require(not cuda.missing(), f"backend 'cuda': {cuda.missing()}")
        launch = cuda.launch
    copies = stacked.tree.copies
    require(
        copies <= WARP,
        f"backend 'cuda' supports models with at most {WARP} equal subtrees, got {copies}; use 'xla'",
    )
    kernel = step_kernel(stacked, fidelity, substeps)
    if launch is cuda.launch:
        cuda.compile_in_background(kernel)  # the first launch waits for the compilation
    robots = THREADS // WARP * (WARP // copies)  # robots per block

    def advance(rows: Array, flags: Array, ctrl: Array) -> Any:
        n = rows.shape[1]
        results = [
            jax.ShapeDtypeStruct(rows.shape, jnp.float32),  # type: ignore[no-untyped-call]
            jax.ShapeDtypeStruct((n,), jnp.float32),  # type: ignore[no-untyped-call]
        ]
        # Updating in place avoids copies of the state between the steps of a scan.
        return tuple(
            launch(
                kernel,
                (rows, flags, ctrl),
                results,
                blocks=-(-n // robots),
                threads=THREADS,
                numbers=(n,),
                aliases={0: 0, 1: 1},
            )
        )

    return advance


def step_kernel(stacked: StackedModel, fidelity: Fidelity, substeps: int) -> Kernel:
    """Return the kernel that simulates a model."""
    layout = packing(stacked.layout)
    spans = layout.qpos + layout.qvel + layout.warm
    program = emit(stacked, fidelity)

    def place(span: tuple[int, int]) -> str:
        return f"[place({span[0]}{' + copy' if span[1] > 1 else ''})]"

    state = [f"x[{i}] = rows{place(span)};" for i, span in enumerate(spans)]
    ctrl = [
        f"c[{i}] = controls[pick(copy, {{{', '.join(map(str, slot))}}})];"
        if len(slot) > 1
        else f"c[{i}] = controls[{slot[0]}];"
        for i, slot in enumerate(stacked.layout.controls)
    ]
    write = [(f"out{place(span)} = x[{i}];", span[1] > 1) for i, span in enumerate(spans)]
    source = simulator(
        "cuda.cu",
        COPIES=stacked.tree.copies,
        THREADS=THREADS,
        ROWS=len(spans),
        HEIGHT=layout.rows,
        CONTROLS=max(len(ctrl), 1),
        WIDTH=sum(len(slot) for slot in stacked.layout.controls),
        SUBSTEPS=substeps,
        CONSTANTS=[
            f"const V {name} = pick(copy, {{{', '.join(f'{x:.9e}f' for x in values)}}});"
            for values, name in program.constants.items()
        ],
        READ=state + ctrl,
        READ_STATE=state,
        BODY=program.lines,
        WRITE=[line for line, wide in write if wide],
        WRITE_TRUNK=[line for line, wide in write if not wide],
    )
    return Kernel(source, "advance")
