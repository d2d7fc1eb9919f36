# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.utils._dtype_abbrs import *
from tenon.compat.utils._dtype_abbrs import _LETTERS as _LETTERS
from tenon.compat.utils._dtype_abbrs import _short as _short
