# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.nn.layers.instance_norm import InstanceNorm1d as InstanceNorm1d
from tenon.nn.layers.instance_norm import InstanceNorm2d as InstanceNorm2d
from tenon.nn.layers.instance_norm import InstanceNorm3d as InstanceNorm3d
from tenon.nn.layers.instance_norm import _InstanceNorm as _InstanceNorm
from tenon.nn.layers.lazy import LazyInstanceNorm1d as LazyInstanceNorm1d
from tenon.nn.layers.lazy import LazyInstanceNorm2d as LazyInstanceNorm2d
from tenon.nn.layers.lazy import LazyInstanceNorm3d as LazyInstanceNorm3d
