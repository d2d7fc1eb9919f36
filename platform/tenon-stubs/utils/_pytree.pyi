# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.utils._pytree import *
from tenon.compat.utils._pytree import _register_pytree_node as _register_pytree_node
