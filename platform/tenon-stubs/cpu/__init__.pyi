# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.cpu import *
from tenon.compat.cpu import _features as _features
from tenon.compat.cpu import _is_avx2_supported as _is_avx2_supported
from tenon.compat.cpu import _is_avx512_bf16_supported as _is_avx512_bf16_supported
from tenon.compat.cpu import _is_avx512_supported as _is_avx512_supported
from tenon.compat.cpu import _is_vnni_supported as _is_vnni_supported
