# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.autograd_profiler import *
from tenon.compat.autograd_profiler import _Emit as _Emit
from tenon.compat.autograd_profiler import _SHARED as _SHARED
from tenon.compat.autograd_profiler import __getattr__ as __getattr__
