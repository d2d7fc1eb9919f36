# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.functions.creation import from_dlpack as from_dlpack
from tenon.functions.creation import to_dlpack as to_dlpack
