# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.utils.datapipes.iter import *
from tenon.compat.utils.datapipes.iter import T as T
