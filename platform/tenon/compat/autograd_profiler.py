"""torch.autograd.profiler: the older face of ``tenon.profiler``, without schedules."""

from __future__ import annotations

from typing import Any, Self

from tenon.errors import UnsupportedError
from tenon.plugins import registry
from tenon.profiler.observe.scopes import record_function as record_function

_SHARED = frozenset(("EventList", "FunctionEvent", "FunctionEventAvg", "kineto_available"))


def __getattr__(name: str) -> Any:
    if name not in _SHARED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return registry.resolve("profilers", name)


def profile(enabled: bool = True, **options: object) -> Any:
    """A profile of the block that it is the context of; options as ``tenon.profiler.profile`` takes them.

    With ``enabled=False`` nothing is recorded.
    """
    return registry.resolve("profilers", "autograd_profile")(enabled, **options)


class _Emit:
    """Ranges for a profiler of another vendor, which are not sent; ``enabled=False`` does nothing."""

    _where = ""

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        self.enabled = enabled
        self.record_shapes = record_shapes

    def __enter__(self) -> Self:
        if self.enabled:
            raise UnsupportedError(
                f"{type(self).__name__}: ranges are not sent to {self._where} here. Use"
                " tenon.profiler.profile, or enabled=False."
            )
        return self

    def __exit__(self, *exc: object) -> None:
        """Nothing was begun."""


class emit_nvtx(_Emit):
    """Refused while enabled: ops are not shown to NVIDIA's tools as ranges."""

    _where = "NVTX"


class emit_itt(_Emit):
    """Refused while enabled: ops are not shown to VTune as ranges."""

    _where = "ITT"
