# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.saved_readers import *
from tenon.compat.saved_readers import _REDUCTIONS as _REDUCTIONS
from tenon.compat.saved_readers import _cut as _cut
from tenon.compat.saved_readers import _indices as _indices
