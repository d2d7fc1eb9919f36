"""PyTorch's module ``autograd.profiler_util``: classes of profile events, from the profiler plugin."""

from __future__ import annotations

from typing import Any

from tenon.plugins import registry

_NAMES = ("EventList", "FunctionEvent", "FunctionEventAvg")


def __getattr__(name: str) -> Any:  # a class of a plugin
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(_NAMES)}.")
    return registry.resolve("profilers", name)


def _format_time(time_us: float) -> str:
    """Format microseconds with three digits, in s, ms or us.

    >>> _format_time(1500)
    '1.500ms'
    """
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if time_us >= size:
            return f"{time_us / size:.3f}{unit}"
    return f"{time_us:.3f}us"


def _format_time_share(time_us: float, total_time_us: float) -> str:
    """Format ``time_us`` as a percentage of ``total_time_us``."""
    if total_time_us == 0:
        if time_us != 0:
            raise AssertionError(f"Expected time_us == 0 but got {time_us}")
        return "NaN"
    return f"{time_us * 100.0 / total_time_us:.2f}%"
