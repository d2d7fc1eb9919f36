# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.compat.backends.mkldnn import *
from tenon.compat.backends.mkldnn import allow_tf32 as allow_tf32
from tenon.compat.backends.mkldnn import deterministic as deterministic
from tenon.compat.backends.mkldnn import enabled as enabled
