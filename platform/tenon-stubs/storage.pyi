# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.storage import *
from tenon.compat.storage import _dtype_to_storage_type_map as _dtype_to_storage_type_map
from tenon.compat.storage import _storage_type_to_dtype_map as _storage_type_to_dtype_map
