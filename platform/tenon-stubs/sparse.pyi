# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.sparse import *
from tenon.compat.sparse import P as P
from tenon.compat.sparse import R as R
