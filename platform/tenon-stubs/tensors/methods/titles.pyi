# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.node_names import *
from tenon.compat.node_names import _has_sizes as _has_sizes
from tenon.compat.node_names import _if as _if
from tenon.compat.node_names import _number_or_tensor as _number_or_tensor
from tenon.compat.node_names import _of_scatter as _of_scatter
from tenon.compat.node_names import _unless_binary as _unless_binary
