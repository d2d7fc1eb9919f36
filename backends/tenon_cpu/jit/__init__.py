"""Generated kernels: what NumPy does slowly, and whole clusters of ops.

``eager_ops/`` has the kernels of single ops, ``loops/`` the Python functions that numba compiles for them.
``emission/`` emits LLVM IR for ``fusion/`` (clusters of ops) and ``short_floats/`` (16-bit floats);
``compiler/`` compiles to machine code and caches it on disk. The files beside these folders emit the LLVM IR
of single kernels: attention, Fourier transforms, integer products.
"""
