"""CUDA kernels, which NVRTC compiles and `jax.ffi` launches on XLA's stream.

JAX's CUDA extras install the NVRTC library. The handler that launches kernels is written in C++, and is
compiled by the system's compiler. Compiled kernels and the compiled handler are cached.
"""

from __future__ import annotations

import ctypes
import glob
import importlib.util
import os
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from importlib import resources
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from memes.errors import UsageError, require
from memes.kernels.cache import cached, digest
from memes.kernels.cxx import compiler, loaded

TARGET = "memes_launch"
OPTIONS = ("--std=c++17",)


class Kernel(NamedTuple):
    """Source code in CUDA C++, and the name of a kernel in this code.

    The parameters of the kernel are pointers to the arguments and results of a launch, followed by
    integers. If a launch is mapped over a batch, each batch member has a separate row of blocks
    (`blockIdx.y`). The arrays of all members are contiguous.
    """

    source: str
    name: str


def launch(
    kernel: Kernel,
    arguments: Sequence[Array],
    results: Sequence[jax.ShapeDtypeStruct],
    *,
    blocks: int,
    threads: int,
    numbers: Sequence[int] = (),
    aliases: Mapping[int, int] | None = None,
    at_once: bool = False,
) -> list[Array]:
    """Run the kernel, and return its results.

    `aliases` maps indices of arguments to indices of results that use the same memory.

    If `at_once` is True, all blocks run concurrently, so that they can wait for each other. In this
    case, the capacity of the GPU limits the number of blocks. The members of a batch then run
    sequentially.
    """
    call = jax.ffi.ffi_call(
        TARGET,
        list(results),
        vmap_method="sequential" if at_once else "broadcast_all",
        input_output_aliases=dict(aliases or {}),
    )
    found = call(
        *arguments,
        kernel=_loaded(kernel),
        blocks=np.int32(blocks),
        threads=np.int32(threads),
        size=np.int64(prod(results[0].shape)),
        numbers=np.array(numbers, np.int32),
        at_once=np.bool_(at_once),
    )
    return list(found)


@cache
def missing() -> str:
    """Return a description of the components that CUDA kernels need and that this machine lacks.

    The description is empty if no component is missing, or if the machine has no GPU.
    """
    if not devices():
        return ""
    if compiler() is None:
        return "there is no C++ compiler (g++ or clang++)"
    if nvrtc() is None:
        return "NVRTC is not found (it is part of the package nvidia-cuda-nvrtc)"
    _BESIDE.submit(jax.device_put, 0, devices()[0])  # start the slow initialisation of the GPU
    try:
        _handler()
    except UsageError as error:
        return str(error)
    return ""


def usable(what: str, capability: float = 0.0) -> bool:
    """Return True if the GPUs can run kernels that need this compute capability.

    Otherwise, print a warning once. In the warning, `what` names the computation that runs without the
    kernels.
    """
    trouble = missing() or _too_old(capability)
    if trouble:
        _warn_once(f"{what} runs in plain XLA, which is slower: {trouble}")
    return not trouble


def _too_old(capability: float) -> str:
    found = min((float(d.compute_capability) for d in devices()), default=capability)
    short = found < capability
    return f"it needs compute capability {capability}, the GPU has {found}" if short else ""


@cache
def _warn_once(sentence: str) -> None:
    warnings.warn(sentence, stacklevel=5)


@cache
def devices() -> tuple[Any, ...]:
    """Return the CUDA GPUs that JAX uses in this process."""
    try:
        return tuple(d for d in jax.local_devices(backend="cuda"))
    except RuntimeError:
        return ()


def _loaded(kernel: Kernel) -> str:
    """Return the key by which the handler finds the kernel. If there is a GPU, load the kernel first."""
    key = digest(*kernel)
    if devices() and key not in _LOADED:
        numbers = [d.local_hardware_id for d in devices()]
        image = compile_in_background(kernel).result()
        ordinals = (ctypes.c_int * len(numbers))(*numbers)
        load = _handler().load
        load.restype = ctypes.c_char_p
        trouble = load(key.encode(), image, kernel.name.encode(), ordinals, len(numbers))
        require(not trouble, f"the kernel '{kernel.name}' cannot be loaded: {trouble.decode()}")
        _LOADED.add(key)
    return key


_LOADED: set[str] = set()
_BESIDE = ThreadPoolExecutor(thread_name_prefix="memes-kernels")


@cache
def compile_in_background(kernel: Kernel) -> Future[bytes]:
    """Start a thread that compiles the kernel for the GPUs of this process."""
    return _BESIDE.submit(compiled, kernel.source, [d.compute_capability for d in devices()])


@cache
def _handler() -> ctypes.CDLL:
    """Compile the handler that launches kernels, register it with JAX, and return its library."""
    source = (resources.files("memes.kernels") / "launch.cc").read_text()
    library = loaded(source, "a kernel for GPUs")
    capsule = jax.ffi.pycapsule(library.LaunchHandler)  # type: ignore[no-untyped-call]
    jax.ffi.register_ffi_target(TARGET, capsule, platform="CUDA")
    return library


# ----------------------------------------------------------------------------------------- compilation


def compiled(source: str, capabilities: Sequence[str]) -> bytes:
    """Compile code for the given compute capabilities, such as "9.0". The result may be PTX code."""
    library = nvrtc()
    assert library is not None
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(library, library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    architecture = _architecture(library, capabilities)
    name = digest(source, architecture, *OPTIONS, f"{major.value}.{minor.value}")

    def build(file: Path) -> None:
        file.write_bytes(_compile(library, source, architecture))

    return cached(f"{name}.cubin", build).read_bytes()


def _architecture(library: ctypes.CDLL, capabilities: Sequence[str]) -> str:
    """Return the architecture for which kernels are compiled.

    If all GPUs have the same architecture and NVRTC supports it, return this architecture. Otherwise,
    return the newest architecture that NVRTC and all GPUs support.
    """
    own = {10 * int(major) + int(minor) for major, minor in (c.split(".") for c in capabilities)}
    count = ctypes.c_int()
    _check(library, library.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
    known = (ctypes.c_int * count.value)()
    _check(library, library.nvrtcGetSupportedArchs(known))
    if len(own) == 1 and own <= set(known):
        return f"sm_{own.pop()}"
    return f"compute_{max((a for a in known if a <= min(own)), default=min(own))}"


def _compile(library: ctypes.CDLL, source: str, architecture: str) -> bytes:
    program = ctypes.c_void_p()
    text = source.encode()
    _check(library, library.nvrtcCreateProgram(ctypes.byref(program), text, b"kernel.cu", 0, None, None))
    try:
        options = [o.encode() for o in (*OPTIONS, f"--gpu-architecture={architecture}")]
        array = (ctypes.c_char_p * len(options))(*options)
        status = library.nvrtcCompileProgram(program, len(options), array)
        log = _fetch(library, "nvrtcGetProgramLog", program) if status else b""
        require(status == 0, f"NVRTC could not compile a kernel: {log.decode()[:500]}")
        kind = "CUBIN" if architecture.startswith("sm_") else "PTX"
        return _fetch(library, f"nvrtcGet{kind}", program)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _fetch(library: ctypes.CDLL, what: str, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    _check(library, getattr(library, f"{what}Size")(program, ctypes.byref(size)))
    data = ctypes.create_string_buffer(size.value)
    _check(library, getattr(library, what)(program, data))
    return data.raw


def _check(library: ctypes.CDLL, status: int) -> None:
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    require(status == 0, f"NVRTC failed: {library.nvrtcGetErrorString(status).decode()}")


@cache
def nvrtc() -> ctypes.CDLL | None:
    """Load NVRTC from JAX's packages or from the system's CUDA. Return None if it is not installed."""
    packages = importlib.util.find_spec("nvidia")
    roots = list(packages.submodule_search_locations or ()) if packages else []
    patterns = [f"{root}/*/lib/libnvrtc.so.*" for root in roots]
    homes = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    patterns += [f"{home}/lib64/libnvrtc.so" for home in (*homes, "/usr/local/cuda") if home]
    files = [file for pattern in patterns for file in sorted(glob.glob(pattern), reverse=True)]
    for file in (*files, "libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"):
        try:
            return ctypes.CDLL(file)
        except OSError:
            continue
    return None
