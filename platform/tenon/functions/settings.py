"""Process-wide settings: threads of the BLAS, deterministic algorithms, matrix-product precision."""

from __future__ import annotations

import ctypes
import numbers
import operator
import os
from collections.abc import Iterator
from typing import Any

from tenon.errors import ArgumentError, UnsupportedError

__all__ = [
    "are_deterministic_algorithms_enabled",
    "get_float32_matmul_precision",
    "get_num_threads",
    "is_deterministic_algorithms_warn_only_enabled",
    "set_float32_matmul_precision",
    "set_flush_denormal",
    "set_num_threads",
    "use_deterministic_algorithms",
]  # fmt: skip

_PREFIXES = ("scipy_openblas_", "openblas_")
_SUFFIXES = ("64_", "")


class _State:
    deterministic = False
    warn_only = False
    precision = "highest"


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Ask for results that repeat bit by bit. CPU kernels always do; other backends read this setting."""
    _State.deterministic, _State.warn_only = bool(mode), bool(warn_only)


def are_deterministic_algorithms_enabled() -> bool:
    """Whether ``use_deterministic_algorithms`` is on."""
    return _State.deterministic


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether a kernel that cannot be deterministic should only warn."""
    return _State.deterministic and _State.warn_only


def set_float32_matmul_precision(precision: str) -> None:
    """Allow float32 products of lower precision ("high", "medium"): a permission, kernels may ignore it."""
    if precision not in ("highest", "high", "medium"):
        raise ArgumentError(
            f"set_float32_matmul_precision: {precision!r} is not one of 'highest', 'high', 'medium'."
        )
    _State.precision = precision


def get_float32_matmul_precision() -> str:
    """The precision allowed for float32 products."""
    return _State.precision


def set_flush_denormal(mode: bool) -> bool:
    """Always False: NumPy cannot change how the processor treats denormal numbers, so nothing was changed."""
    return False


def _functions(verb: str) -> Iterator[Any]:
    """``openblas_<verb>_num_threads`` of every OpenBLAS in this process (Linux)."""
    try:
        with open("/proc/self/maps", encoding="utf-8") as maps:
            paths = {line.split()[-1] for line in maps if "openblas" in line and ".so" in line}
    except OSError:
        return
    for path in sorted(paths):
        library = ctypes.CDLL(path)
        names = (f"{prefix}{verb}_num_threads{suffix}" for prefix in _PREFIXES for suffix in _SUFFIXES)
        found = next((f for f in (getattr(library, name, None) for name in names) if f is not None), None)
        if found is not None:
            yield found


def set_num_threads(int: Any) -> None:  # torch's parameter name
    """Set how many threads NumPy's BLAS uses for matrix products; elementwise kernels use one."""
    if not isinstance(int, numbers.Integral):
        raise TypeError(f"set_num_threads expects an int, but got {type(int).__name__}")
    if int <= 0:
        raise ArgumentError(f"set_num_threads expects a positive integer, got {int}")
    setters = list(_functions("set"))
    if not setters:
        raise UnsupportedError(
            "set_num_threads: NumPy's BLAS in this process is not an OpenBLAS that can be told. Set "
            "OMP_NUM_THREADS (or "
            "MKL_NUM_THREADS, VECLIB_MAXIMUM_THREADS) before starting Python instead."
        )
    for setter in setters:
        setter(ctypes.c_int(operator.index(int)))


def get_num_threads() -> int:
    """How many threads NumPy's BLAS uses; the number of usable processors where it cannot be asked."""
    counts: list[Any] = [getter() for getter in _functions("get")]
    if counts:
        return operator.index(max(counts))
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
