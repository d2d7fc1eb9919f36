# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.nn.layers.lazy import LazyBatchNorm1d as LazyBatchNorm1d
from tenon.nn.layers.lazy import LazyBatchNorm2d as LazyBatchNorm2d
from tenon.nn.layers.lazy import LazyBatchNorm3d as LazyBatchNorm3d
from tenon.nn.layers.norm import BatchNorm1d as BatchNorm1d
from tenon.nn.layers.norm import BatchNorm2d as BatchNorm2d
from tenon.nn.layers.norm import BatchNorm3d as BatchNorm3d
from tenon.nn.layers.norm import _BatchNorm as _BatchNorm
from tenon.nn.layers.norm import _NormBase as _NormBase
from tenon.nn.layers.sync_batch_norm import SyncBatchNorm as SyncBatchNorm
