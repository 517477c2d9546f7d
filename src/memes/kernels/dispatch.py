"""The choice between CUDA, C++ and XLA."""

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
    """Return one function for several that compute the same.

    The platform is chosen when a program is compiled for it; only that function is in the program.
    Kernels are left out if they cannot run: C++ without a compiler, or in a process whose default device
    is no CPU; CUDA without NVRTC, which prints a warning.

    Args:
        xla: The function in plain JAX, for every platform without a special one.
        xla_on_cpu: Another one in plain JAX, which is faster on CPUs.
        cpp: A kernel in C++, on CPUs instead of `xla_on_cpu`.
        cuda: A kernel in CUDA, on NVIDIA GPUs.
        what: What they compute, for the warning.
        capability: The least compute capability of a GPU that the CUDA kernel needs.
    """
    on_cpu = cpp if cpp is not None and runs_cpp() else xla_on_cpu
    on_gpu = cuda if cuda is not None and usable(what, capability) else None
    special = {"cpu": on_cpu, "cuda": on_gpu}
    kernels: dict[str, Any] = {name: by for name, by in special.items() if by is not None}
    return partial(jax.lax.platform_dependent, **kernels, default=xla)


def fastest(what: str, *, cuda: bool) -> Literal["xla", "cuda", "cpp"]:
    """Name what is fastest on JAX's default device, for code that is laid out for one of the three.

    `cuda` says whether a CUDA kernel would fit. On CPUs it is C++, whose compiler may still be missing.
    """
    device = jax.default_backend()
    if device == "cpu":
        return "cpp"
    return "cuda" if device == "gpu" and cuda and devices() and usable(what) else "xla"


def runs_cpp() -> bool:
    """Is JAX's default device a CPU, with a C++ compiler that works?"""
    return jax.default_backend() == "cpu" and works()
