"""The same trace as vectorised C++, compiled once by the system's compiler and called through `jax.ffi`.

Every scalar of the simulation becomes a vector of 4, 8 or 16 robots, whatever the processor has, and a
step a few thousand vector operations in a row. The library is kept in a cache, named after its source,
the compiler and the processor.
"""

from __future__ import annotations

import ctypes
import hashlib
import operator
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from memes.errors import require
from memes.physics import step as stepping
from memes.physics.algebra import Operations, Scalar, Value
from memes.physics.backends import Advance, packing
from memes.physics.solver import Fidelity, Iterate, flatten, restore
from memes.physics.stacking import StackedModel
from memes.physics.step import Phase

# No -ffast-math: comparisons with NaN must mean what they say, since they find robots that failed.
FLAGS = ("-std=c++17", "-O2", "-ftree-vectorize", "-fno-math-errno", "-fno-trapping-math")


def compiler() -> str | None:
    """The system's C++ compiler, or None."""
    return next(filter(None, map(shutil.which, (os.environ.get("CXX", "g++"), "g++", "clang++"))), None)


def native_backend(folded: StackedModel, fidelity: Fidelity, substeps: int) -> Advance:
    """Vectorised C++ on all cores. The model must not be stacked."""
    assert folded.tree.copies == 1, "the native backend unrolls every subtree"
    source = generate(folded, fidelity, substeps)
    name = _register(source)
    layout = packing(folded.layout)

    def advance(rows: Any, flags: Any, controls: Any) -> Any:
        n = rows.shape[1]
        if not layout.controls:
            controls = jnp.zeros((1, n))
        result = [
            jax.ShapeDtypeStruct(rows.shape, jnp.float32),  # type: ignore[no-untyped-call]
            jax.ShapeDtypeStruct((n,), jnp.float32),  # type: ignore[no-untyped-call]
        ]
        call = jax.ffi.ffi_call(name, result, vmap_method="sequential")
        return tuple(call(rows, flags, controls))

    return advance


# -------------------------------------------------------------------------------------- generation


class _Expression:
    """The name of a C++ variable; arithmetic with it writes a line of code."""

    __slots__ = ("name", "program")

    def __init__(self, program: _Program, name: str) -> None:
        self.program = program
        self.name = name

    def _write(self, template: str, *operands: Any) -> _Expression:
        return self.program.declare("V", template.format(*map(_literal, operands)))

    def __add__(self, other: Any) -> _Expression:
        return self._write("{} + {}", self, other)

    def __radd__(self, other: Any) -> _Expression:
        return self._write("{} + {}", other, self)

    def __sub__(self, other: Any) -> _Expression:
        return self._write("{} - {}", self, other)

    def __rsub__(self, other: Any) -> _Expression:
        return self._write("{} - {}", other, self)

    def __mul__(self, other: Any) -> _Expression:
        return self._write("{} * {}", self, other)

    def __truediv__(self, other: Any) -> _Expression:
        return self._write("{} / {}", self, other)

    def __rtruediv__(self, other: Any) -> _Expression:
        return self._write("{} / {}", other, self)

    def __neg__(self) -> _Expression:
        return self._write("-{}", self)

    def __lt__(self, other: Any) -> _Expression:
        return self.program.declare("I", f"{self.name} < {_literal(other)}")

    def __gt__(self, other: Any) -> _Expression:
        return self.program.declare("I", f"{self.name} > {_literal(other)}")


def _literal(x: Any) -> str:
    return x.name if isinstance(x, _Expression) else f"all({float(x):.9e}f)"


class _Program:
    """Lines of C++, in the order in which the trace makes them."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._count = 0

    def declare(self, kind: str, expression: str) -> _Expression:
        self._count += 1
        self.lines.append(f"{kind} v{self._count} = {expression};")
        return _Expression(self, f"v{self._count}")

    def operations(self) -> Operations:
        def call(name: str) -> Callable[..., _Expression]:
            return lambda *operands: self.declare("V", f"{name}({', '.join(map(_literal, operands))})")

        return Operations(
            divide=operator.truediv,
            sin=call("sine"),
            cos=call("cosine"),
            sqrt=call("root"),
            abs=call("absolute"),
            minimum=call("least"),
            maximum=call("greatest"),
            where=call("choose"),
            lift=_impossible,
            total=_impossible,
            fill=lambda x, stacked: x if isinstance(x, _Expression) else self.declare("V", _literal(x)),
        )

    def repeat(self, count: int, body: Callable[[Iterate], Iterate], start: Iterate) -> Iterate:
        """A loop of C++ whose variables are those of the iterate."""
        of = self.operations()
        carried = [self.declare("V", _literal(_raw(x))) for x in flatten(start)]
        values = [Value(x, of) for x in carried]
        self.lines.append(f"for (int i{self._count} = 0; i{self._count} < {count}; ++i{self._count}) {{")
        after = [_literal(_raw(x)) for x in flatten(body(restore(values, start)))]
        self.lines += [f"{x.name} = {new};" for x, new in zip(carried, after, strict=True)]
        self.lines.append("}")
        return restore(values, start)


def _impossible(*_: Any) -> Any:
    raise AssertionError("a model that is not stacked has no stacked constants")


def _raw(x: Scalar) -> Any:
    return x.data if isinstance(x, Value) else x


def generate(folded: StackedModel, fidelity: Fidelity, substeps: int) -> str:
    """The C++ source of a simulator."""
    model, tree = folded.model, folded.tree
    program = _Program()
    of = program.operations()

    def read(array: str, start: int, count: int) -> list[Scalar]:
        return [Value(program.declare("V", f"{array}[{start + i}]"), of) for i in range(count)]

    phase = Phase(
        read("x", 0, model.nq), read("x", model.nq, model.nv), read("x", model.nq + model.nv, model.nv)
    )
    after = stepping.step(model, tree, phase, read("c", 0, model.nu), fidelity, program.repeat)
    results = [_literal(_raw(x)) for x in (*after.qpos, *after.qvel, *after.warm)]
    program.lines += [f"x[{i}] = {x};" for i, x in enumerate(results)]
    return (
        _PRELUDE.replace("@ROWS@", str(len(results)))
        .replace("@CONTROLS@", str(max(model.nu, 1)))
        .replace("@SUBSTEPS@", str(substeps))
        .replace("@BODY@", "\n  ".join(program.lines))
    )


# ------------------------------------------------------------------------------------- compilation


def _register(source: str) -> str:
    """Compile the source, or find it compiled, and make it known to JAX; returns the target's name."""
    program = compiler()
    require(program is not None, "backend 'native' needs a C++ compiler (g++ or clang++), found none")
    assert program is not None
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    about = [source, version, jax.__version__, *FLAGS, _processor()]  # JAX: its headers are compiled in
    key = hashlib.sha256("\0".join(about).encode()).hexdigest()[:24]
    folder = _folder_for(f"{key}.so")
    library = folder / f"{key}.so"
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            file, built = Path(scratch) / "step.cc", Path(scratch) / "step.so"
            file.write_text(source)
            tuned = "-mcpu=native" if platform.machine() in ("arm64", "aarch64") else "-march=native"
            flags = (*FLAGS, tuned, "-pthread", "-shared", "-fPIC", "-w", f"-I{jax.ffi.include_dir()}")
            command = [program, *flags, str(file), "-o", str(built)]
            done = subprocess.run(command, capture_output=True, text=True)
            require(done.returncode == 0, f"backend 'native': the compiler failed: {done.stderr[:500]}")
            os.replace(built, library)  # whole or not at all, also with two runs at once
    name = f"memes_physics_{key}"
    if name not in _REGISTERED:
        handler = ctypes.CDLL(str(library)).Step
        capsule = jax.ffi.pycapsule(handler)  # type: ignore[no-untyped-call]
        jax.ffi.register_ffi_target(name, capsule, platform="cpu")
        _REGISTERED.add(name)
    return name


_REGISTERED: set[str] = set()


def _folder_for(name: str) -> Path:
    """The cache, if it holds a file of that name or can; else a folder that goes with this process."""
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "memes" / "native"
    if (folder / name).exists():
        return folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return Path(_temporary_folder().name)


@cache
def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="memes-")


def _processor() -> str:
    """What `-march=native` depends on."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()} {platform.processor()} {features}"


_PRELUDE = """\
#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>
#include "xla/ffi/api/ffi.h"

#if defined(__AVX512F__)
constexpr int W = 16;
#elif defined(__AVX__)
constexpr int W = 8;
#else
constexpr int W = 4;
#endif
typedef float V __attribute__((vector_size(4 * W)));
typedef int I __attribute__((vector_size(4 * W)));
constexpr int ROWS = @ROWS@, CONTROLS = @CONTROLS@;

static inline V all(float x) { return V{} + x; }
static inline V choose(I m, V a, V b) { return (V)((m & (I)a) | (~m & (I)b)); }
// Of a NaN and a number, the NaN: a robot that fails must be seen to fail.
static inline V least(V a, V b) { return choose((a < b) | (a != a), a, b); }
static inline V greatest(V a, V b) { return choose((a > b) | (a != a), a, b); }
static inline V absolute(V a) { return (V)((I)a & 0x7fffffff); }
static inline V root(V a) { V r; for (int i = 0; i < W; ++i) r[i] = __builtin_sqrtf(a[i]); return r; }
static inline V down(V a) { V r; for (int i = 0; i < W; ++i) r[i] = __builtin_floorf(a[i]); return r; }
// Sine and cosine of an angle by polynomials in its half, reduced to [-pi/2, pi/2].
static inline V half_angle(V x) {
  V turns = down(x * 0.15915494309189535f + 0.5f);
  return 0.5f * ((x - turns * 6.28125f) - turns * 1.9353071795864769e-3f);
}
static inline V half_sine(V h) {
  V s = h * h;
  return h * (1.f + s * (-1.66666667e-1f + s * (8.33333333e-3f + s * (-1.98412698e-4f +
         s * (2.75573192e-6f + s * -2.50521e-8f)))));
}
static inline V half_cosine(V h) {
  V s = h * h;
  return 1.f + s * (-.5f + s * (4.16666667e-2f + s * (-1.38888889e-3f +
         s * (2.48015873e-5f + s * -2.7557319e-7f))));
}
static inline V sine(V x) { V h = half_angle(x); return 2.f * half_sine(h) * half_cosine(h); }
static inline V cosine(V x) { V s = half_sine(half_angle(x)); return 1.f - 2.f * s * s; }

static __attribute__((noinline)) void step(V* __restrict x, const V* __restrict c) {
  @BODY@
}

// Robots [first, last), at most W of them, in columns of row-major arrays with n columns.
static void simulate(const float* rows, const float* failed, const float* controls, float* out,
                     float* out_failed, long n, long first, long last) {
  V x[ROWS], before[ROWS], c[CONTROLS];
  auto load = [&](const float* from, long row) {
    V v;
    for (int i = 0; i < W; ++i) v[i] = from[row * n + std::min(first + i, last - 1)];
    return v;
  };
  for (int r = 0; r < ROWS; ++r) before[r] = x[r] = load(rows, r);
  for (int r = 0; r < CONTROLS; ++r) c[r] = load(controls, r);
  for (int k = 0; k < @SUBSTEPS@; ++k) step(x, c);
  V zero = all(0.f);
  for (int r = 0; r < ROWS; ++r) zero += x[r] - x[r];  // NaN where anything is not finite
  I alive = (zero == all(0.f)) & (load(failed, 0) == all(0.f));
  for (int r = 0; r < ROWS; ++r) {
    V kept = choose(alive, x[r], before[r]);
    for (long i = first; i < last; ++i) out[r * n + i] = kept[i - first];
  }
  for (long i = first; i < last; ++i) out_failed[i] = alive[i - first] ? 0.f : 1.f;
}

namespace ffi = xla::ffi;
static ffi::Error Run(ffi::Buffer<ffi::F32> rows, ffi::Buffer<ffi::F32> failed,
                      ffi::Buffer<ffi::F32> controls, ffi::ResultBuffer<ffi::F32> out,
                      ffi::ResultBuffer<ffi::F32> out_failed) {
  const long n = rows.dimensions()[1], blocks = (n + W - 1) / W;
  const long workers = std::max(1L, std::min<long>(std::thread::hardware_concurrency(), blocks / 4));
  auto work = [&](long worker) {
    for (long b = blocks * worker / workers; b < blocks * (worker + 1) / workers; ++b)
      simulate(rows.typed_data(), failed.typed_data(), controls.typed_data(), out->typed_data(),
               out_failed->typed_data(), n, b * W, std::min(n, (b + 1) * W));
  };
  std::vector<std::thread> others;
  for (long worker = 1; worker < workers; ++worker) others.emplace_back(work, worker);
  work(0);
  for (auto& other : others) other.join();
  return ffi::Error::Success();
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(Step, Run, ffi::Ffi::Bind()
    .Arg<ffi::Buffer<ffi::F32>>().Arg<ffi::Buffer<ffi::F32>>().Arg<ffi::Buffer<ffi::F32>>()
    .Ret<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());
"""
