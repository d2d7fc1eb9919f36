# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.testing._comparison import *
from tenon.compat.testing._comparison import T as T
from tenon.compat.testing._comparison import _unwrap_dtensor_for_comparison as _unwrap_dtensor_for_comparison
