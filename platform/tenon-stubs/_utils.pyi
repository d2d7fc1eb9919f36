# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat._utils import *
from tenon.compat._utils import _element_size as _element_size
from tenon.compat._utils import _flatten_dense_tensors as _flatten_dense_tensors
from tenon.compat._utils import _is_privateuse1_backend_available as _is_privateuse1_backend_available
from tenon.compat._utils import _rebuild_tensor as _rebuild_tensor
from tenon.compat._utils import _unflatten_dense_tensors as _unflatten_dense_tensors
