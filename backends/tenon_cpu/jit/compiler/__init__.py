"""Machine code by numba and LLVM: compiled, called, and kept on disk."""
