# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.functions.making import from_dlpack as from_dlpack
from tenon.functions.making import to_dlpack as to_dlpack
