"""Kernels for GPUs, run on the CPU: slow, and bound to find what the GPU finds to rounding."""

import ctypes
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import jax
import numpy as np


@cache
def build(kernel):
    folder = Path(tempfile.mkdtemp(prefix="memes-emulated-"))
    file, library = folder / "kernel.cc", folder / "kernel.so"
    entry = 'extern "C" void emulate(void** p, int w, int h, int t) { warp::launch(%s, p, w, h, t); }'
    file.write_text(f'#include "warp.h"\n{kernel.source}\n{entry % kernel.name}\n')
    include = f"-I{Path(__file__).parent}"
    flags = ["-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-Wl,-Bsymbolic", include]
    command = ["g++", *flags, str(file), "-o", str(library)]
    subprocess.run(command, check=True)
    loaded = ctypes.CDLL(str(library))
    shutil.rmtree(folder)
    return loaded.emulate


def launch(kernel, arguments, results, *, blocks, threads, numbers=(), aliases=None):
    """As `memes.kernels.cuda.launch`."""

    def call(*arrays):
        batch = arrays[0].shape[: arrays[0].ndim - len(arguments[0].shape)]
        given = [np.array(x) for x in arrays]
        made = [np.full((*batch, *r.shape), np.nan, r.dtype) for r in results]
        for i, o in (aliases or {}).items():
            made[o] = given[i]
        holders = [ctypes.c_void_p(x.ctypes.data) for x in (*given, *made)]
        holders += [ctypes.c_int(number) for number in numbers]
        parameters = (ctypes.c_void_p * len(holders))(*(ctypes.addressof(h) for h in holders))
        build(kernel)(parameters, blocks, int(np.prod(batch)), threads)
        return made

    return list(jax.pure_callback(call, list(results), *arguments, vmap_method="broadcast_all"))
