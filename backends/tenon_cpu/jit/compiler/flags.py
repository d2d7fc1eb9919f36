"""The options of numba for kernels, and their text, which is part of a kernel's key on disk."""

from __future__ import annotations

from collections.abc import Collection

from tenon.extend import errors

#: Options of ``numba.njit``.
Flags = dict[str, bool | str | set[str]]
#: ``fastmath`` of kernels that do not state it.
FASTMATH = ("contract",)
#: nnan and ninf would let LLVM assume that there is no NaN and no infinity; arcp and afn lose digits.
_SAFE = frozenset({"contract", "reassoc", "nsz"})


def flags_of(fastmath: Collection[str]) -> Flags:
    """The options of a kernel with these flags of ``fastmath``; ArgumentError if one is not safe."""
    fast = frozenset(fastmath)
    if not fast <= _SAFE:
        raise errors.ArgumentError(
            f"fastmath {sorted(fast - _SAFE)} changes the handling of NaN and infinity, or the accuracy; only"
            f" {sorted(_SAFE)} are allowed."
        )
    return {"nogil": True, "error_model": "numpy", "boundscheck": False, "fastmath": set(fast)}


def text_of(flags: Flags) -> str:
    """``flags`` as text that is the same in every process, unlike the order of a set."""
    return repr(sorted((k, sorted(v) if isinstance(v, set) else v) for k, v in flags.items()))


__all__ = ["FASTMATH", "Flags", "flags_of", "text_of"]
