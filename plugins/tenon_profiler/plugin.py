"""The plugin of ``tenon.profiler``, ``tenon profile`` and ``tenon train --profile``."""

from collections.abc import Mapping

from tenon.extend import CommandTarget, hookimpl
from tenon_profiler.hooks import tenon_session_finish, tenon_session_start, tenon_step_begin, tenon_step_end

_PROFILE = "tenon_profiler.profile:profile"
_SCHEDULE = "tenon_profiler.schedule"


@hookimpl
def tenon_profilers() -> Mapping[str, str]:
    """Provide torch.profiler's names."""
    return {
        "profile": _PROFILE,
        "autograd_profile": "tenon_profiler.profile:autograd_profile",
        "schedule": f"{_SCHEDULE}:schedule",
        "ProfilerAction": f"{_SCHEDULE}:ProfilerAction",
        "ProfilerActivity": f"{_SCHEDULE}:ProfilerActivity",
        "kineto_available": f"{_SCHEDULE}:kineto_available",
        "supported_activities": f"{_SCHEDULE}:supported_activities",
        "DeviceType": "tenon_profiler.averages:DeviceType",
        "EventList": "tenon_profiler.averages:EventList",
        "FunctionEvent": "tenon_profiler.averages:FunctionEvent",
        "FunctionEventAvg": "tenon_profiler.averages:FunctionEventAvg",
        "tensorboard_trace_handler": "tenon_profiler.handler:tensorboard_trace_handler",
        "read_trace": "tenon_profiler.trace_reader:read_trace",
        "merge": "tenon_profiler.merge:merge",
        "export_xplane": "tenon_profiler.xplane:export_xplane",
    }


@hookimpl
def tenon_commands() -> Mapping[str, str]:
    """Provide ``tenon profile show``, ``merge`` and ``xplane``."""
    summary = "Show, merge and convert the traces of a run."
    return {"profile": CommandTarget("tenon_profiler.command:profile", summary=summary)}


__all__ = [
    "tenon_commands",
    "tenon_profilers",
    "tenon_session_finish",
    "tenon_session_start",
    "tenon_step_begin",
    "tenon_step_end",
]
