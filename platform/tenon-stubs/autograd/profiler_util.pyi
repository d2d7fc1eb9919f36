# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.autograd_events import *
from tenon.compat.autograd_events import _NAMES as _NAMES
from tenon.compat.autograd_events import __getattr__ as __getattr__
from tenon.compat.autograd_events import _format_time as _format_time
from tenon.compat.autograd_events import _format_time_share as _format_time_share
