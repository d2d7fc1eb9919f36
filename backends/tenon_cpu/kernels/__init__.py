"""Kernels of NumPy, cut among threads and into blocks; ``table`` says which calls each accepts."""
