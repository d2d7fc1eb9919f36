"""Compiled kernels as ops: which calls they serve."""
