"""Machine code from numba and LLVM: made, called, and kept on disk."""
