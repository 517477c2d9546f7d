"""Custom kernels for `jax.ffi`, compiled from C++ by the system's compiler or from CUDA by NVRTC."""
