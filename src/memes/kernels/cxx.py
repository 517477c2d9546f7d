"""Compilation of C++ by the system's compiler, with a cache."""

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

# -ffast-math must not be used, because comparisons with NaN detect failed simulations.
FLAGS = ("-std=c++17", "-O2", "-ftree-vectorize", "-fno-math-errno", "-fno-trapping-math")


LINES_PER_SECOND = 2500  # compiled lines of a simulator per second on an idle machine
SLOW = 20  # print a message if a compilation is expected to take more seconds than this


def compiler() -> str | None:
    """Return the path of the system's C++ compiler, or None if there is none."""
    return next(filter(None, map(shutil.which, (os.environ.get("CXX", "g++"), "g++", "clang++"))), None)


def loaded(source: str, user: str) -> ctypes.CDLL:
    """Compile a library for this processor, and load it.

    Args:
        source: The C++ source.
        user: The part of memes that needs the library. Error messages contain this name.

    Raises:
        UsageError: If the library cannot be compiled or loaded.
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
            print(f"compiling {user} takes about {seconds:.0f} s; the result is cached", file=sys.stderr)
        _output([program, *flags, str(file), "-ldl", "-o", str(library)], user)
        require(library.exists(), f"{user}: the compiler '{program}' failed to write the library")

    # The key contains the version of jaxlib, because jaxlib rejects libraries made with newer headers.
    version = _output([program, "--version"], user)
    key = digest(source, version, *FLAGS, _processor(), metadata.version("jaxlib"))
    try:
        return ctypes.CDLL(str(cached(f"{key}.so", build)))
    except OSError as error:  # the library cannot be written or loaded
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
    """Return the output of the compiler, or raise a `UsageError` if the compiler fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    except OSError as error:
        raise UsageError(f"{user}: the compiler '{command[0]}' fails to start: {error}") from error
    said = " ".join(done.stderr.split())[:500] or f"exit code {done.returncode}"
    require(done.returncode == 0, f"{user}: the compiler '{command[0]}' failed: {said}")
    return done.stdout


@cache
def native_target(source: str, handler: str, user: str) -> str:
    """Compile C++ code, register its handler with JAX, and return the name of the FFI target.

    The compiled library is cached. `user` names the part of memes that needs the library. Error messages
    contain this name.
    """
    library = loaded(source, user)
    name = f"memes_{handler}_{digest(source)}"
    capsule = jax.ffi.pycapsule(getattr(library, handler))  # type: ignore[no-untyped-call]
    jax.ffi.register_ffi_target(name, capsule, platform="cpu")
    return name


def parallel() -> str:
    """Return C++ code that handlers use to distribute work among XLA's threads."""
    return (resources.files("memes.kernels") / "parallel.h").read_text()


@cache
def _processor() -> str:
    """Return a description of the processor, because the result of `-march=native` depends on it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()} {platform.processor()} {features}"
