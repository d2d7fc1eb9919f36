# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.nn.layers.norm import GroupNorm as GroupNorm
from tenon.nn.layers.norm import LayerNorm as LayerNorm
from tenon.nn.layers.norm import RMSNorm as RMSNorm
from tenon.nn.layers.response_norm import CrossMapLRN2d as CrossMapLRN2d
from tenon.nn.layers.response_norm import LocalResponseNorm as LocalResponseNorm
