# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat._VF import *
from tenon.compat._VF import __getattr__ as __getattr__
from tenon.compat._VF import _add_relu as _add_relu
