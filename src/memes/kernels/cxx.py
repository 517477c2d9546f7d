"""C++ compiled by the system's compiler and cached."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import sys
from functools import cache
from importlib import metadata, resources
from pathlib import Path

import jax

from memes.errors import UsageError, require
from memes.kernels.cache import cached, digest

# Without -ffast-math, because comparisons with NaN detect robots whose simulation failed.
FLAGS = ("-std=c++17", "-O2", "-ftree-vectorize", "-fno-math-errno", "-fno-trapping-math")


LINES_PER_SECOND = 2500  # roughly, of a compiler, in sources of simulators on an idle machine
SLOW = 20  # seconds after which a user should know what is going on


def compiler() -> str | None:
    """Return the path of the system's C++ compiler, or None."""
    return next(filter(None, map(shutil.which, (os.environ.get("CXX", "g++"), "g++", "clang++"))), None)


def loaded(source: str, user: str) -> ctypes.CDLL:
    """Compile and load a library for this processor; `user` is named in error messages.

    Raises a `UsageError` if it cannot be compiled or loaded.
    """
    program = compiler()
    require(program is not None, f"{user} needs a C++ compiler (g++ or clang++), found none")
    assert program is not None
    tuned = "-mcpu=native" if platform.machine() in ("arm64", "aarch64") else "-march=native"
    flags = (*FLAGS, tuned, "-pthread", "-shared", "-fPIC", "-w", f"-I{jax.ffi.include_dir()}")

    def build(library: Path) -> None:
        file = library.with_suffix(".cc")
        file.write_text(source)
        seconds = source.count("\n") / LINES_PER_SECOND
        if seconds > SLOW:
            print(f"compiling {user} takes about {seconds:.0f} s, once: it is cached", file=sys.stderr)
        _output([program, *flags, str(file), "-ldl", "-o", str(library)], user)
        require(library.exists(), f"{user}: the compiler '{program}' failed: it wrote nothing")

    # The library depends on the headers of jaxlib: an older jaxlib refuses that of a newer one.
    version = _output([program, "--version"], user)
    key = digest(source, version, *FLAGS, _processor(), metadata.version("jaxlib"))
    try:
        return ctypes.CDLL(str(cached(f"{key}.so", build)))
    except OSError as error:  # no writable folder, or none from which code may be loaded
        raise UsageError(f"{user}: {error}") from error


def works() -> bool:
    """Return True if there is a working C++ compiler."""
    return _works(compiler())


@cache
def _works(program: str | None) -> bool:
    try:
        loaded('extern "C" void nothing() {}', f"'{program}'")
    except UsageError:
        return False
    return True


def _output(command: list[str], user: str) -> str:
    """Return the output of the compiler; raises a `UsageError` if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    except OSError as error:
        raise UsageError(f"{user}: the compiler '{command[0]}' fails to start: {error}") from error
    said = " ".join(done.stderr.split())[:500] or f"exit code {done.returncode}"
    require(done.returncode == 0, f"{user}: the compiler '{command[0]}' failed: {said}")
    return done.stdout


@cache
def native_target(source: str, handler: str, user: str) -> str:
    """Compile the source, or find it in the cache, and register its handler with JAX.

    Returns the name.
    """
    library = loaded(source, user)
    name = f"memes_{handler}_{digest(source)}"
    capsule = jax.ffi.pycapsule(getattr(library, handler))  # type: ignore[no-untyped-call]
    jax.ffi.register_ffi_target(name, capsule, platform="cpu")
    return name


def parallel() -> str:
    """Return C++ code that shares work among XLA's threads, for sources of handlers."""
    return (resources.files("memes.kernels") / "parallel.h").read_text()


@cache
def _processor() -> str:
    """Describe the processor, on which `-march=native` depends."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()} {platform.processor()} {features}"
