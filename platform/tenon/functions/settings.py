"""Process-wide settings: threads, deterministic algorithms, matrix-product precision."""

from __future__ import annotations

import numbers
import operator
from typing import SupportsIndex

from tenon.config import DECIDED
from tenon.errors import ArgumentError
from tenon.kernels.backend import backend_named
from tenon.tensors.alerts import Settings

__all__ = [
    "are_deterministic_algorithms_enabled",
    "get_deterministic_debug_mode",
    "get_float32_matmul_precision",
    "get_num_interop_threads",
    "get_num_threads",
    "is_deterministic_algorithms_warn_only_enabled",
    "is_warn_always_enabled",
    "set_deterministic_debug_mode",
    "set_float32_matmul_precision",
    "set_flush_denormal",
    "set_num_interop_threads",
    "set_num_threads",
    "set_warn_always",
    "use_deterministic_algorithms",
]  # fmt: skip


_MODES = ("default", "warn", "error")


class _State:
    precision = "highest"


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Require bitwise reproducible results. CPU kernels are always deterministic; other backends read this
    setting, and ops that PyTorch then rejects (``put`` without ``accumulate``, ``max_unpool2d``) raise."""
    for name, value in (("'mode' (position 1)", mode), ("'warn_only'", warn_only)):
        if not isinstance(value, bool):
            raise TypeError(
                f"_set_deterministic_algorithms(): argument {name} must be bool, not {type(value).__name__}"
            )
    Settings.deterministic, Settings.warn_only = mode, warn_only


def are_deterministic_algorithms_enabled() -> bool:
    """Whether ``use_deterministic_algorithms`` is on."""
    return Settings.deterministic


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether a kernel that cannot be deterministic should only warn."""
    return Settings.warn_only


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """``use_deterministic_algorithms`` by a number or a name: 0 "default", 1 "warn", 2 "error"."""
    if not isinstance(debug_mode, (int, str)):
        raise TypeError(f"debug_mode must be str or int, but got {type(debug_mode)}")
    number = _MODES.index(debug_mode) if debug_mode in _MODES else debug_mode
    if not isinstance(number, int) or not 0 <= number < len(_MODES):
        raise ArgumentError(f"invalid value of debug_mode, expected 0, 1, 2 or {_MODES}, got {debug_mode!r}")
    use_deterministic_algorithms(number > 0, warn_only=number == 1)


def get_deterministic_debug_mode() -> int:
    """The number of the mode: 0, 1 or 2."""
    return 0 if not Settings.deterministic else 1 if Settings.warn_only else 2


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


def set_num_threads(int: SupportsIndex) -> None:  # PyTorch's parameter name
    """Set how many threads the CPU's kernels use: BLAS, oneDNN, compiled loops and parallel loops."""
    if not isinstance(int, numbers.Integral):
        raise TypeError(f"set_num_threads expects an int, but got {type(int).__name__}")
    if int <= 0:
        raise ArgumentError(f"set_num_threads expects a positive integer, got {int}")
    backend_named("cpu").set_threads(operator.index(int))
    DECIDED["threads"] = "tenon.set_num_threads"


def get_num_threads() -> int:
    """How many threads the CPU's kernels use."""
    return backend_named("cpu").threads()


def set_num_interop_threads(int: SupportsIndex) -> None:  # PyTorch's parameter name
    """Check the argument; it has no effect, as ops run sequentially on the calling thread."""
    if not isinstance(int, numbers.Integral):
        raise TypeError(f"set_num_interop_threads expects an int, but got {type(int).__name__}")
    if int <= 0:
        raise ArgumentError(f"set_num_interop_threads expects a positive integer, got {int}")


def get_num_interop_threads() -> int:
    """Always 1: ops run sequentially on the calling thread."""
    return 1


def set_warn_always(b: bool, /) -> None:
    """Whether warnings that are given once per process (``tensors/alerts.py``) are given each time."""
    if not isinstance(b, bool):
        raise TypeError(f"set_warn_always expects a bool, but got {type(b).__name__}")
    Settings.warn_always = b


def is_warn_always_enabled() -> bool:
    """The setting of ``set_warn_always``."""
    return Settings.warn_always
