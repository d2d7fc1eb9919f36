"""The CPU backend: NumPy reference forwards and a table of faster kernels."""
