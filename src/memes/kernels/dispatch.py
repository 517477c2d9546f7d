"""Selection of implementations in CUDA, C++ and plain JAX."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeVar

import jax

from memes.kernels.cuda import devices, usable
from memes.kernels.cxx import works

T = TypeVar("T")


def choose(
    *,
    xla: Callable[..., T],
    xla_on_cpu: Callable[..., T] | None = None,
    cpp: Callable[..., T] | None = None,
    cuda: Callable[..., T] | None = None,
    what: str = "",
    capability: float = 0.0,
) -> Callable[..., T]:
    """Return a function that selects one of several implementations of the same computation.

    XLA selects the implementation when it compiles a program for a platform. The program contains only
    the selected implementation. A kernel can be selected only if its requirements are met:

    - A C++ kernel needs a compiler, and the default device of the process must be a CPU.
    - A CUDA kernel needs a compiler and NVRTC. If one of them is missing, a warning is printed.

    Args:
        xla: The function in plain JAX, for platforms without a faster implementation.
        xla_on_cpu: A function in plain JAX that is faster than `xla` on CPUs.
        cpp: A kernel in C++, which replaces `xla_on_cpu` if the kernel can run.
        cuda: A kernel in CUDA for NVIDIA GPUs.
        what: Name of the computation in warnings.
        capability: Minimum compute capability of the GPU for the CUDA kernel.
    """
    on_cpu = cpp if cpp is not None and runs_cpp() else xla_on_cpu
    on_gpu = cuda if cuda is not None and usable(what, capability) else None
    special = {"cpu": on_cpu, "cuda": on_gpu}
    kernels: dict[str, Any] = {name: by for name, by in special.items() if by is not None}
    return partial(jax.lax.platform_dependent, **kernels, default=xla)


def fastest(what: str, *, cuda: bool) -> Literal["xla", "cuda", "cpp"]:
    """Return the name of the fastest implementation for JAX's default device.

    On CPUs, the result is "cpp", even without a compiler.

    Args:
        what: Name of the computation in warnings.
        cuda: Whether the computation has a CUDA kernel.
    """
    device = jax.default_backend()
    if device == "cpu":
        return "cpp"
    return "cuda" if device == "gpu" and cuda and devices() and usable(what) else "xla"


def runs_cpp() -> bool:
    """Return True if JAX's default device is a CPU, and there is a working C++ compiler."""
    return jax.default_backend() == "cpu" and works()
