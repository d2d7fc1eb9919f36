# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.backends.nnpack import *
from tenon.compat.backends.nnpack import _enabled as _enabled
from tenon.compat.backends.nnpack import _nnpack_available as _nnpack_available
