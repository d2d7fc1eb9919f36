"""torch.autograd.profiler: the older face of ``tenon.profiler``, without schedules."""

from __future__ import annotations

from typing import Any

from tenon.observe.scopes import record_function as record_function
from tenon.plugins import registry


def profile(enabled: bool = True, **options: Any) -> Any:
    """A profile of the block that it is the context of; options as ``tenon.profiler.profile`` takes them.

    With ``enabled=False`` nothing is recorded.
    """
    return registry.resolve("profilers", "autograd_profile")(enabled, **options)
