"""Custom kernels for `jax.ffi`: the system's compiler compiles C++, and NVRTC compiles CUDA."""
