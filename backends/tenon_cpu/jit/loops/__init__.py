"""Loops over arrays as Python functions, which numba compiles."""
