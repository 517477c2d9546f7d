"""Custom kernels for `jax.ffi`: C++ for the system's compiler, and CUDA for NVRTC."""
