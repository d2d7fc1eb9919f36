"""Ops over spatial axes: windows, pooling, patches, resampling, sampling grids; not convolution."""

from tenon.ops.spatial import adaptive_pooling as adaptive_pooling
from tenon.ops.spatial import grid as grid
from tenon.ops.spatial import max_pool_indices as max_pool_indices
from tenon.ops.spatial import patches as patches
from tenon.ops.spatial import pooling as pooling
from tenon.ops.spatial import resampling as resampling
from tenon.ops.spatial import sampling as sampling
from tenon.ops.spatial import window as window
