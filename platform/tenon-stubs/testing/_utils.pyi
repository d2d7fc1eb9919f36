# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.testing._utils import *
from tenon.compat.testing._utils import P as P
from tenon.compat.testing._utils import R as R
