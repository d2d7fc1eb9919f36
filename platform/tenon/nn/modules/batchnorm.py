"""PyTorch's path ``nn.modules.batchnorm``; the code is in ``tenon.nn.layers.norm``."""

from tenon.nn.layers.lazy import LazyBatchNorm1d, LazyBatchNorm2d, LazyBatchNorm3d
from tenon.nn.layers.norm import BatchNorm1d, BatchNorm2d, BatchNorm3d, _BatchNorm, _NormBase
from tenon.nn.layers.sync_batch_norm import SyncBatchNorm

__all__ = [
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "LazyBatchNorm1d",
    "LazyBatchNorm2d",
    "LazyBatchNorm3d",
    "SyncBatchNorm",
    "_BatchNorm",
    "_NormBase",
]
