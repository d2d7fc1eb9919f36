"""Where the values of a ``fully_shard`` parameter lie, if it is plain and if it is tensor-parallel.

A tensor-parallel parameter is a ``DTensor`` on another dimension of the same mesh. ``fully_shard`` splits the
part that a rank has of it, gathers that part, and shows the module a DTensor as before; optimizers and
``state_dict`` see a DTensor on all dimensions.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tenon.distributed.fsdp.released import local_of
from tenon.distributed.tensor.dtensor import DTensor
from tenon.distributed.tensor.mesh_backend import mesh_backend
from tenon.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard, StridedShard
from tenon.distributed.tensor.sharded_array import ShardedArray
from tenon.engine.types import Array
from tenon.errors import ArgumentError
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    import numpy as np

    from tenon.distributed.device_mesh import DeviceMesh
    from tenon.kernels.backend import Backend


class Layout:
    """The layout of a plain parameter that ``fully_shard`` splits over ``mesh``."""

    def __init__(self, parameter: Tensor, mesh: DeviceMesh) -> None:
        self.mesh = mesh
        """The mesh of the shards."""
        self.whole_shape: tuple[int, ...] = tuple(int(s) for s in parameter.shape)
        """The shape of the parameter."""
        self.shape = self.whole_shape
        """The shape of what a rank has while it is gathered."""

    def placements(self, axis: int) -> tuple[Placement, ...]:
        """Those of the shards, if ``axis`` is split: the last dimension of the mesh splits."""
        return (Replicate(),) * (self.mesh.ndim - 1) + (Shard(axis),)

    @property
    def gathered_placements(self) -> tuple[Placement, ...]:
        """Those of the shards when they are gathered."""
        return (Replicate(),) * self.mesh.ndim

    def gathered(self, local: Array, backend: Backend) -> Tensor:
        """``local``, an array of ``shape``, as the tensor that modules see."""
        return Tensor._of(local, backend)

    def host_part(self, tensor: Tensor) -> np.ndarray:
        """What a rank has of ``tensor``, as a gathered parameter or its gradient is, on the host; may be
        collective."""
        host: np.ndarray = tensor._backend.to_host(tensor.raw)
        return host


class TensorParallelLayout(Layout):
    """The layout of a parameter that is a DTensor on other dimensions of the mesh."""

    def __init__(self, parameter: DTensor, mesh: DeviceMesh, name: str) -> None:
        super().__init__(parameter, mesh)
        self.inner_mesh, self.inner = parameter.device_mesh, parameter.placements
        self.shape = tuple(local_of(parameter.raw).shape)
        self.mesh = _joined(mesh, parameter, name)
        self._outer = mesh.ndim
        if any(isinstance(p, Partial) for p in self.inner):
            raise ArgumentError(
                f"fully_shard: parameter {name!r} has the placements {self.inner}: partial results cannot be"
                " trained. Redistribute it to Shard or Replicate."
            )

    def placements(self, axis: int) -> tuple[Placement, ...]:
        """Those of the shards on all dimensions."""
        split = StridedShard(axis) if any(p.is_shard(axis) for p in self.inner) else Shard(axis)
        return (*(Replicate(),) * (self._outer - 1), split, *self.inner)

    @property
    def gathered_placements(self) -> tuple[Placement, ...]:
        """Those of the parameter on its own dimensions, replicated over the others."""
        return (*(Replicate(),) * self._outer, *self.inner)

    def gathered(self, local: Array, backend: Backend) -> Tensor:
        """``local`` as this rank's part of a DTensor."""
        outer = mesh_backend(self.inner_mesh, backend)
        return DTensor._of(ShardedArray(local, self.whole_shape, self.inner, outer), outer)

    def host_part(self, tensor: Tensor) -> np.ndarray:
        """The local part; a gradient is brought to the placements of the parameter."""
        array: ShardedArray = tensor.raw
        device = array.backend.device
        return device.to_host(array.redistributed(self.inner, "gradient").local)


def layout_of(parameter: Tensor, mesh: DeviceMesh, name: str) -> Layout:
    """The layout of ``parameter``; ArgumentError if it is sharded over dimensions that ``mesh`` does not
    complete."""
    if isinstance(parameter, DTensor):
        return TensorParallelLayout(parameter, mesh, name)
    return Layout(parameter, mesh)


def _joined(mesh: DeviceMesh, parameter: DTensor, name: str) -> DeviceMesh:
    """The mesh of the dimensions of ``mesh`` and, after them, of the parameter's."""
    inner, root = parameter.device_mesh, mesh._root
    own, others = mesh.mesh_dim_names, inner.mesh_dim_names
    if own is not None and others is not None and not set(own) & set(others):
        with contextlib.suppress(KeyError):  # the root has no such dimensions, or has them in another order
            if root[others] == inner:  # its own root may be another mesh, of which this part is equal
                return root[(*own, *others)]
    raise ArgumentError(
        f"fully_shard: parameter {name!r} is a DTensor already, on {inner!r} by {parameter.placements}:"
        " another fully_shard call has sharded it, or it is tensor-parallel. A parameter that two modules"
        " share has to be sharded by one call on a module that contains both. Tensor parallel composes if"
        ' both meshes are named dimensions of one, data first: mesh = init_device_mesh("cpu", (2, 2),'
        ' mesh_dim_names=("dp", "tp")); parallelize_module(model, mesh["tp"], plan); fully_shard(model,'
        f' mesh=mesh["dp"]). Here fully_shard is on {mesh!r}.'
    )
