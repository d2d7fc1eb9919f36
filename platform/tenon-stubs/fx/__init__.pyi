# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.fx import *
from tenon.compat.fx import T as T
from tenon.compat.fx import _Absent as _Absent
from tenon.compat.fx import _refuse as _refuse
from tenon.compat.fx import get_proxy_mode as get_proxy_mode
