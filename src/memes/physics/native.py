"""The `native` backend, which executes vectorised C++ on CPUs through `jax.ffi`.

Each scalar of the program becomes a vector for 4, 8 or 16 robots, depending on the processor. A step
requires a few thousand vector operations. The code is compiled once and cached.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from memes.kernels.cxx import native_target, parallel
from memes.physics.backends import Advance
from memes.physics.emit import emit, simulator
from memes.physics.solver import Fidelity
from memes.physics.stacking import StackedModel


def native_backend(folded: StackedModel, fidelity: Fidelity, substeps: int) -> Advance:
    """Return the native backend, which uses all cores.

    The model must not contain stacked subtrees (see `stacking.py`).
    """
    assert folded.tree.copies == 1, "the native backend unrolls every subtree"
    name = native_target(native_source(folded, fidelity, substeps), "Step", "backend 'native'")
    order = [i for slot in folded.layout.controls for i in slot]

    def advance(rows: Any, flags: Any, ctrl: Any) -> Any:
        n = rows.shape[1]
        controls = jnp.stack([ctrl[:, i] for i in order]) if order else jnp.zeros((1, n))
        result = [
            jax.ShapeDtypeStruct(rows.shape, jnp.float32),  # type: ignore[no-untyped-call]
            jax.ShapeDtypeStruct((n,), jnp.float32),  # type: ignore[no-untyped-call]
        ]
        call = jax.ffi.ffi_call(name, result, vmap_method="sequential")
        return tuple(call(rows, flags, controls))

    return advance


def native_source(folded: StackedModel, fidelity: Fidelity, substeps: int) -> str:
    """Return the C++ source that simulates a model."""
    model = folded.model
    return simulator(
        "native.cc",
        ROWS=model.nq + 2 * model.nv,
        CONTROLS=max(model.nu, 1),
        SUBSTEPS=substeps,
        BODY=emit(folded, fidelity).lines,
        PARALLEL=parallel(),
    )
