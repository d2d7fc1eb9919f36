# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.nn.layers.conv import Conv1d as Conv1d
from tenon.nn.layers.conv import Conv2d as Conv2d
from tenon.nn.layers.conv import Conv3d as Conv3d
from tenon.nn.layers.conv import ConvTranspose1d as ConvTranspose1d
from tenon.nn.layers.conv import ConvTranspose2d as ConvTranspose2d
from tenon.nn.layers.conv import ConvTranspose3d as ConvTranspose3d
from tenon.nn.layers.conv import _ConvNd as _ConvNd
from tenon.nn.layers.lazy import LazyConv1d as LazyConv1d
from tenon.nn.layers.lazy import LazyConv2d as LazyConv2d
from tenon.nn.layers.lazy import LazyConv3d as LazyConv3d
from tenon.nn.layers.lazy import LazyConvTranspose1d as LazyConvTranspose1d
from tenon.nn.layers.lazy import LazyConvTranspose2d as LazyConvTranspose2d
from tenon.nn.layers.lazy import LazyConvTranspose3d as LazyConvTranspose3d
