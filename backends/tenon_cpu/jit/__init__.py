"""Kernels compiled with numba: what NumPy does slowly, and whole clusters of ops."""
