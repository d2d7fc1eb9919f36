"""torch.autograd.profiler: the older face of ``tenon.profiler``, without schedules."""

from __future__ import annotations

from typing import Any

from tenon.observe.scopes import record_function as record_function
from tenon.plugins import registry

_SHARED = frozenset(("EventList", "FunctionEvent"))


def __getattr__(name: str) -> Any:
    if name not in _SHARED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return registry.resolve("profilers", name)


def profile(enabled: bool = True, **options: Any) -> Any:
    """A profile of the block that it is the context of; options as ``tenon.profiler.profile`` takes them.

    With ``enabled=False`` nothing is recorded.
    """
    return registry.resolve("profilers", "autograd_profile")(enabled, **options)
