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
    """Require bitwise reproducible results (torch.use_deterministic_algorithms).

    CPU kernels are always deterministic; other backends read this setting. Ops that PyTorch rejects in this
    mode (``put`` without ``accumulate``, ``max_unpool2d``) raise ArgumentError, or warn with ``warn_only``.
    """
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
    """Call ``use_deterministic_algorithms`` for a number or a name: 0 "default", 1 "warn", 2 "error"."""
    if not isinstance(debug_mode, (int, str)):
        raise TypeError(f"debug_mode must be str or int, but got {type(debug_mode)}")
    number = _MODES.index(debug_mode) if debug_mode in _MODES else debug_mode
    if not isinstance(number, int) or not 0 <= number < len(_MODES):
        raise ArgumentError(f"invalid value of debug_mode, expected 0, 1, 2 or {_MODES}, got {debug_mode!r}")
    use_deterministic_algorithms(number > 0, warn_only=number == 1)


def get_deterministic_debug_mode() -> int:
    """Return the number of the mode, as ``set_deterministic_debug_mode`` takes it: 0, 1 or 2."""
    return 0 if not Settings.deterministic else 1 if Settings.warn_only else 2


def set_float32_matmul_precision(precision: str) -> None:
    """Allow matrix products of float32 to be computed in lower precision: "highest" (no), "high", "medium".

    Kernels need not use it. ArgumentError for another value.
    """
    if precision not in ("highest", "high", "medium"):
        raise ArgumentError(
            f"set_float32_matmul_precision: {precision!r} is not one of 'highest', 'high', 'medium'."
        )
    _State.precision = precision


def get_float32_matmul_precision() -> str:
    """Return the precision allowed for float32 products: "highest", "high" or "medium"."""
    return _State.precision


def set_flush_denormal(mode: bool) -> bool:
    """Return False, as nothing was changed: NumPy cannot change how the processor treats denormal numbers."""
    return False


def set_num_threads(int: SupportsIndex) -> None:  # PyTorch's parameter name
    """Set the number of threads that the CPU's kernels use: BLAS, oneDNN, compiled and parallel loops."""
    if not isinstance(int, numbers.Integral):
        raise TypeError(f"set_num_threads expects an int, but got {type(int).__name__}")
    if int <= 0:
        raise ArgumentError(f"set_num_threads expects a positive integer, got {int}")
    backend_named("cpu").set_threads(operator.index(int))
    DECIDED["threads"] = "tenon.set_num_threads"


def get_num_threads() -> int:
    """Return the number of threads that the CPU's kernels use."""
    return backend_named("cpu").threads()


def set_num_interop_threads(int: SupportsIndex) -> None:  # PyTorch's parameter name
    """Check the argument; it has no effect, as ops run sequentially on the calling thread."""
    if not isinstance(int, numbers.Integral):
        raise TypeError(f"set_num_interop_threads expects an int, but got {type(int).__name__}")
    if int <= 0:
        raise ArgumentError(f"set_num_interop_threads expects a positive integer, got {int}")


def get_num_interop_threads() -> int:
    """Return 1: ops run sequentially on the calling thread."""
    return 1


def set_warn_always(b: bool, /) -> None:
    """Set whether warnings that are issued once per process are issued each time (torch.set_warn_always)."""
    if not isinstance(b, bool):
        raise TypeError(f"set_warn_always expects a bool, but got {type(b).__name__}")
    Settings.warn_always = b


def is_warn_always_enabled() -> bool:
    """Return the setting of ``set_warn_always``."""
    return Settings.warn_always
