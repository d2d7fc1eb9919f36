"""``DTensorSpec``: what a DTensor is, without its values, as PyTorch's internals describe it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tenon.dtypes import dtype

if TYPE_CHECKING:
    from tenon.distributed.device_mesh import DeviceMesh
    from tenon.distributed.tensor.placement_types import Placement


@dataclass(frozen=True)
class TensorMeta:
    """Shape, stride and dtype of the whole tensor."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: dtype


@dataclass(frozen=True)
class DTensorSpec:
    """``tensor._spec``: the mesh, the placements, and the ``TensorMeta`` of the whole."""

    mesh: DeviceMesh
    placements: tuple[Placement, ...]
    tensor_meta: TensorMeta

    @property
    def device_mesh(self) -> DeviceMesh:
        """The mesh."""
        return self.mesh

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole."""
        return self.tensor_meta.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.tensor_meta.shape)
