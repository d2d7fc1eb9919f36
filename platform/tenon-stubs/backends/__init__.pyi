# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.backends import *
from tenon.compat.backends import _frozen as _frozen
