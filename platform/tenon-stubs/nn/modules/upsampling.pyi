# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.nn.layers.resizing import Upsample as Upsample
from tenon.nn.layers.resizing import UpsamplingBilinear2d as UpsamplingBilinear2d
from tenon.nn.layers.resizing import UpsamplingNearest2d as UpsamplingNearest2d
