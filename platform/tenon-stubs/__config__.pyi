# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.__config__ import *
from tenon.compat.__config__ import _cxx_flags as _cxx_flags
