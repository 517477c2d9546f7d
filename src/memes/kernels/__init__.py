"""Code of our own for devices: C++ by the system's compiler, CUDA C++ by NVRTC, called through `jax.ffi`."""
