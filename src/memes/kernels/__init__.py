"""Code of our own for `jax.ffi` to call: C++ by the system's compiler, CUDA C++ by NVRTC."""
