"""The CUDA backend: the shared reference forwards over CuPy."""
