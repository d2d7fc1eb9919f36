# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.nn.layers.attention import NonDynamicallyQuantizableLinear as NonDynamicallyQuantizableLinear
from tenon.nn.layers.lazy import LazyLinear as LazyLinear
from tenon.nn.layers.linear import Bilinear as Bilinear
from tenon.nn.layers.linear import Identity as Identity
from tenon.nn.layers.linear import Linear as Linear
