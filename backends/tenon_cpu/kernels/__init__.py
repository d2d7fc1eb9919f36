"""Kernels of NumPy, divided among threads and into blocks; ``table`` has the calls that each accepts."""
