# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.serialize.options import load as load
from tenon.serialize.options import save as save
