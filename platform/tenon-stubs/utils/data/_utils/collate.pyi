# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.utils.collate import *
from tenon.compat.utils.collate import FnMap as FnMap
from tenon.compat.utils.collate import _by_default_collate as _by_default_collate
from tenon.compat.utils.collate import collate_float_fn as collate_float_fn
from tenon.compat.utils.collate import collate_int_fn as collate_int_fn
from tenon.compat.utils.collate import collate_numpy_array_fn as collate_numpy_array_fn
from tenon.compat.utils.collate import collate_numpy_scalar_fn as collate_numpy_scalar_fn
from tenon.compat.utils.collate import collate_str_fn as collate_str_fn
from tenon.compat.utils.collate import collate_tensor_fn as collate_tensor_fn
