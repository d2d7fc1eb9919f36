# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.functions import atleast_1d as atleast_1d
from tenon.functions import atleast_2d as atleast_2d
from tenon.functions import atleast_3d as atleast_3d
from tenon.functions import block_diag as block_diag
from tenon.functions import broadcast_shapes as broadcast_shapes
from tenon.functions import broadcast_tensors as broadcast_tensors
from tenon.functions import cartesian_prod as cartesian_prod
from tenon.functions import cdist as cdist
from tenon.functions import chain_matmul as chain_matmul
from tenon.functions import istft as istft
from tenon.functions import lu as lu
from tenon.functions import meshgrid as meshgrid
from tenon.functions import norm as norm
from tenon.functions import pca_lowrank as pca_lowrank
from tenon.functions import split as split
from tenon.functions import stft as stft
from tenon.functions import svd_lowrank as svd_lowrank
from tenon.functions import tensordot as tensordot
from tenon.functions import unique as unique
from tenon.functions import unique_consecutive as unique_consecutive
from tenon.functions import unravel_index as unravel_index
from tenon.functions.einsum import einsum as einsum
