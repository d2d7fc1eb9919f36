"""``torch.autograd.profiler``: the older interface of ``tenon.profiler``, without schedules."""

from __future__ import annotations

from typing import Any, Self

from tenon.errors import UnsupportedError
from tenon.plugins import registry
from tenon.profiler.observe.scopes import record_function as record_function

_SHARED = frozenset(("EventList", "FunctionEvent", "FunctionEventAvg", "kineto_available"))


def __getattr__(name: str) -> Any:  # a class or function of a plugin
    if name not in _SHARED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return registry.resolve("profilers", name)


def profile(enabled: bool = True, **options: object) -> Any:  # a class of a plugin
    """Return a context manager that profiles its block; options are those of ``tenon.profiler.profile``.

    With ``enabled=False`` nothing is recorded.
    """
    return registry.resolve("profilers", "autograd_profile")(enabled, **options)


class _Emit:
    """Base of the context managers that send ranges to a vendor's profiler, which is not supported.

    Raises UnsupportedError on entry unless ``enabled=False``.
    """

    _profiler = ""

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        self.enabled = enabled
        self.record_shapes = record_shapes

    def __enter__(self) -> Self:
        if self.enabled:
            raise UnsupportedError(
                f"{type(self).__name__}: ranges cannot be sent to {self._profiler}. Use"
                " tenon.profiler.profile, or enabled=False."
            )
        return self

    def __exit__(self, *exc: object) -> None:
        """Do nothing."""


class emit_nvtx(_Emit):
    """Raises UnsupportedError if enabled: ops are not sent to NVTX as ranges."""

    _profiler = "NVTX"


class emit_itt(_Emit):
    """Raises UnsupportedError if enabled: ops are not sent to VTune as ranges."""

    _profiler = "ITT"
