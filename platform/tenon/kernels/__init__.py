"""How ops are computed on arrays: backends, their tables of kernels, and the memory layout of results.

Start with ``backend.py``; ``kernel_table.py`` selects among the kernels of an op, ``plan_table.py`` tells the
engine what to call.
"""
