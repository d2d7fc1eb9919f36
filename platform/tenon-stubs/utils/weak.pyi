# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.utils.weak import *
from tenon.compat.utils.weak import K as K
from tenon.compat.utils.weak import T as T
from tenon.compat.utils.weak import V as V
