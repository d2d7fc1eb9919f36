# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.ops.aten import Operator as OpOverload
from tenon.ops.aten import Operator as OpOverloadPacket
from tenon import ops as ops
