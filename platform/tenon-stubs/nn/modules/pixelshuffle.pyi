# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.nn.layers.resizing import PixelShuffle as PixelShuffle
from tenon.nn.layers.resizing import PixelUnshuffle as PixelUnshuffle
