"""Generated kernels: what NumPy does slowly, and whole clusters of ops.

``eager_ops/`` has the conditions of calls; ``loops/`` are Python functions that numba compiles, ``emission/``
writes LLVM's language for ``fusion/`` and ``short_floats/``, ``compiler/`` makes machine code and keeps it.
The files beside them are the texts of single kernels: attention, Fourier transforms, integer products.
"""
