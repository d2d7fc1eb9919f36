"""Give memory back that the C library keeps for later (see ``allocator.py`` for why it keeps it)."""

from __future__ import annotations

import ctypes


def give_back() -> bool:
    """Return free memory to the system, once; False where glibc is not the C library."""
    library = ctypes.CDLL(None)
    return hasattr(library, "malloc_trim") and bool(library.malloc_trim(0))
