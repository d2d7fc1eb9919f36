# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.fake_tensor import *
from tenon.compat.fake_tensor import _refuse as _refuse
from tenon.compat.fake_tensor import is_fake as is_fake
