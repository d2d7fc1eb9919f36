# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.profiler import itt as itt
from tenon.profiler.observe.scopes import record_function as record_function
from tenon_profiler.averages import DeviceType as DeviceType
from tenon_profiler.averages import EventList as EventList
from tenon_profiler.averages import FunctionEvent as FunctionEvent
from tenon_profiler.averages import FunctionEventAvg as FunctionEventAvg
from tenon_profiler.handler import tensorboard_trace_handler as tensorboard_trace_handler
from tenon_profiler.merge import merge as merge
from tenon_profiler.profile import autograd_profile as autograd_profile
from tenon_profiler.profile import profile as profile
from tenon_profiler.schedule import ProfilerAction as ProfilerAction
from tenon_profiler.schedule import ProfilerActivity as ProfilerActivity
from tenon_profiler.schedule import kineto_available as kineto_available
from tenon_profiler.schedule import schedule as schedule
from tenon_profiler.schedule import supported_activities as supported_activities
from tenon_profiler.trace_reader import read_trace as read_trace
from tenon_profiler.xplane import export_xplane as export_xplane
