"""Custom kernels for `jax.ffi`: C++ compiled by the system's compiler, CUDA C++ by NVRTC."""
