"""Run CUDA kernels on the CPU. This is slow. The results agree with those of a GPU up to rounding."""

import ctypes
import mmap
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
    call = f"{{ return warp::launch({kernel.name}, p, w, h, t, o); }}"
    entry = f'extern "C" bool emulate(void** p, int w, int h, int t, bool o) {call}'
    file.write_text(f'#include "warp.h"\n{kernel.source}\n{entry}\n')
    include = f"-I{Path(__file__).parent}"
    flags = ["-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-Wl,-Bsymbolic", include]
    command = ["g++", *flags, str(file), "-o", str(library)]
    subprocess.run(command, check=True)
    loaded = ctypes.CDLL(str(library))
    shutil.rmtree(folder)
    loaded.emulate.restype = ctypes.c_bool
    return loaded.emulate


def shared(array):
    """Return a copy of an array in memory that is shared between processes."""
    memory = mmap.mmap(-1, max(array.nbytes, 1))
    copy = np.frombuffer(memory, array.dtype, array.size).reshape(array.shape)
    copy[...] = array
    return copy


CONCURRENT_BLOCKS = 2  # blocks that run at the same time


def launch(kernel, arguments, results, *, blocks, threads, numbers=(), aliases=None, at_once=False):
    """Run a kernel in the emulator, with the arguments of `memes.kernels.cuda.launch`."""

    def call(*arrays):
        batch = arrays[0].shape[: arrays[0].ndim - len(arguments[0].shape)]
        place = shared if at_once else np.array
        given = [place(np.asarray(x)) for x in arrays]
        sources = {o: i for i, o in (aliases or {}).items()}
        made = [
            given[sources[o]] if o in sources else place(np.full((*batch, *r.shape), np.nan, r.dtype))
            for o, r in enumerate(results)
        ]
        holders = [ctypes.c_void_p(x.ctypes.data) for x in (*given, *made)]
        holders += [ctypes.c_int(number) for number in numbers]
        parameters = (ctypes.c_void_p * len(holders))(*(ctypes.addressof(h) for h in holders))
        wide = min(blocks, CONCURRENT_BLOCKS) if at_once else blocks
        succeeded = build(kernel)(parameters, wide, int(np.prod(batch)), threads, at_once)
        assert succeeded, f"a block of the kernel '{kernel.name}' has crashed"
        return made

    method = "sequential" if at_once else "broadcast_all"
    return list(jax.pure_callback(call, list(results), *arguments, vmap_method=method))
