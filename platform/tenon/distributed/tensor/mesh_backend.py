"""The backend of sharded arrays: each op runs on the parts that ranks have, by the kernels of their device.

As gradient rules are made of ops, a backward pass is sharded in the same way. Next: ``sharded_kernels.py``.
"""

from __future__ import annotations

import contextvars
import enum
import warnings
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from tenon.device import Device
from tenon.distributed.communication import world
from tenon.distributed.tensor import redistribution
from tenon.distributed.tensor.chunks import local_part
from tenon.distributed.tensor.placement_types import Replicate, Shard
from tenon.distributed.tensor.sharded_array import Placements, ShardedArray, of_gradient
from tenon.distributed.tensor.sharded_kernels import Created, Drawn, Exact, Sharded
from tenon.engine.aval import Aval
from tenon.engine.op import Composite, Kind, Op
from tenon.engine.types import Arguments, Array, NumpyDType, Operand
from tenon.engine.value import Value
from tenon.errors import ArgumentError, TenonWarning
from tenon.kernels.backend import Backend, Kernel, MemoryStats, backend_for

if TYPE_CHECKING:
    from tenon.distributed.device_mesh import DeviceMesh


class Implicit(enum.Enum):
    """In which ops plain tensors beside DTensors are replicated."""

    NONE = 0
    CLASS_LOSSES = 1
    ALL = 2


#: Kinds of ops whose results do not depend on the parts in which they are computed.
_ELEMENT_BY_ELEMENT = (Kind.ELEMENTWISE, Kind.MOVE, Kind.CREATE, Kind.RANDOM, Kind.MEMORY, Kind.COLLECTIVE)
#: Other than ``NONE`` inside of ``loss_parallel`` and ``implicit_replication``.
IMPLICIT: contextvars.ContextVar[Implicit] = contextvars.ContextVar(
    "implicit replication", default=Implicit.NONE
)


class MeshBackend(Backend):
    """The backend of tensors that are sharded over ``mesh``; ``device`` is that of the local parts."""

    array_type = ShardedArray

    def __init__(self, mesh: DeviceMesh, device: Backend) -> None:
        super().__init__()
        self.mesh, self.device = mesh, device
        self.name = device.name
        self.member = mesh.get_coordinate() is not None
        self.exact = False
        """Whether results have the bits of those of whole tensors: ops other than elementwise ones gather
        their inputs. ``deterministic="world"`` of ``fully_shard`` sets it for the mesh of its parameters."""

    # --- arrays ---

    def part_of(self, shape: Sequence[int], placements: Placements) -> tuple[int, ...]:
        """The shape of this rank's part; without elements on ranks outside of the mesh."""
        coordinate = self.mesh.get_coordinate()
        if coordinate is None:
            return (0,) * len(shape)
        return local_part(shape, placements, self.mesh.shape, coordinate)[0]

    def replicate(self, value: Operand, dtype: NumpyDType | None = None) -> ShardedArray:
        """A number, or an array of the device that all ranks have, as a sharded array."""
        local = value
        if not hasattr(value, "shape") or isinstance(value, np.generic):
            local = self.device.xp.asarray(value, dtype)
        return ShardedArray(local, tuple(local.shape), (Replicate(),) * self.mesh.ndim, self)

    def redistribute(self, x: ShardedArray, placements: Placements, name: str) -> Array:
        """The local part of ``x`` by other placements; collective."""
        redistribution.check_convertible(x.placements, placements)
        if not self.member:
            return x.local
        if isinstance(x.local, Aval):
            return x.local.with_shape(self.part_of(x.shape, placements))
        host = self.device.to_host(x.local)
        part = redistribution.redistribute(host, x.shape, x.placements, placements, self.mesh, name)
        return x.local if part is host else self.device.from_host(part, self.device.device_of(x.local))

    def empty(self, shape: tuple[int, ...], dtype: NumpyDType, device: Device) -> ShardedArray:
        """A whole array on every rank."""
        return self.replicate(self.device.empty(shape, dtype, device))

    def from_host(self, array: np.ndarray, device: Device) -> ShardedArray:
        """``array``, which all ranks have."""
        return self.replicate(self.device.from_host(array, device))

    def to_host(self, array: ShardedArray) -> np.ndarray:
        """The whole array, on every rank; collective unless it is replicated."""
        return self.device.to_host(array.redistributed(array.replicated, "to the host").local)

    def as_array(self, value: Operand) -> ShardedArray:
        """``value`` itself, or replicated if it is a number or an array of the device."""
        return value if isinstance(value, ShardedArray) else self.replicate(value)

    @property
    def own(self) -> Backend:
        """The backend of the local parts."""
        return self.device

    def on_device(self, device: Device) -> MeshBackend:
        """The backend of tensors that are sharded over the same mesh, with parts on ``device``."""
        return mesh_backend(self.mesh, backend_for(device))

    def empty_like(self, array: ShardedArray, dtype: NumpyDType, device: Device) -> ShardedArray:
        """An uninitialised array with the placements of ``array``; whole where that has partial results."""
        placements = of_gradient(array.placements)
        local = self.device.empty(self.part_of(array.shape, placements), dtype, device)
        return ShardedArray(local, array.shape, placements, self)

    def placed_as(self, like: ShardedArray, array: ShardedArray) -> ShardedArray:
        """``array`` by the placements of ``like``, whole where that is partial; may be collective."""
        return array.redistributed(of_gradient(like.placements), "placement")

    def whole(self, array: ShardedArray) -> Array:
        """The array of the device, on every rank."""
        return array.redistributed(array.replicated, "gather").local

    def joint_norm(self, arrays: Sequence[ShardedArray], order: float) -> Array | None:
        """Of the norms of local parts: one collective for each mesh dimension that splits an array."""
        if self.exact or not order > 0 or not self.member or any(isinstance(a.local, Aval) for a in arrays):
            return None
        found: dict[tuple[int, ...], list[float]] = {}
        kinds = set()
        for array in arrays:
            placed = self.placed_as(array, array)
            dims = tuple(d for d, p in enumerate(placed.placements) if isinstance(p, Shard))
            local = self.device.raw.vector_norm(placed.local, order=order, axes=tuple(range(array.ndim)))
            found.setdefault(dims, []).append(float(self.device.to_host(local)))
            kinds.add(local.dtype)
        joined = self._joined_norm({d: float(np.linalg.norm(n, order)) for d, n in found.items()}, order)
        device = self.device.device_of(arrays[0].local)
        return self.device.from_host(np.asarray(joined, np.result_type(*kinds)), device)

    def _joined_norm(self, norms: dict[tuple[int, ...], float], order: float) -> float:
        """The norm of all ``norms``, by the mesh dimensions along which the ranks have different ones."""
        for dim in reversed(range(self.mesh.ndim)):
            along = sorted(dims for dims in norms if dim in dims)
            if not along:
                continue
            own = np.asarray([norms.pop(dims) for dims in along])
            every = self.mesh.get_group(dim).all_gather(own, name="norms of DTensors").wait()
            for dims, norm in zip(along, np.linalg.norm(every, order, axis=0), strict=True):
                others = norms.get(dims[:-1], 0.0)  # ``dim`` is the last, as those after it are done
                norms[dims[:-1]] = float(np.linalg.norm([others, norm], order))
        return norms.get((), 0.0)

    def own_part(self, like: ShardedArray, array: ShardedArray) -> Array:
        """The local part of ``array`` by the placements of ``like``; collective if it has others.

        An array of another shape, such as a number for all elements, is whole.
        """
        if not isinstance(array, ShardedArray):
            return array
        placements = like.placements if array.shape == like.shape else array.replicated
        return array.redistributed(placements, "update").local

    def is_placed_as(self, like: ShardedArray, array: ShardedArray) -> bool:
        """Whether the placements are equal."""
        return isinstance(array, ShardedArray) and array.placements == like.placements

    def shares_memory(self, a: ShardedArray, b: ShardedArray) -> bool:
        """Whether the local parts overlap."""
        return not isinstance(a.local, Aval) and self.device.shares_memory(a.local, b.local)

    def device_of(self, array: ShardedArray) -> Device:
        """The device of the local part."""
        return self.device.device_of(array.local)

    def devices(self) -> Sequence[Device]:
        """Those of the local parts' backend."""
        return self.device.devices()

    def synchronize(self, device: Device | None = None) -> None:
        """Wait for the device of the local parts."""
        self.device.synchronize(device)

    def memory(self, device: Device | None = None) -> MemoryStats:
        """The memory of this rank's device."""
        return self.device.memory(device)

    def gather_arguments(self, op: Op, args: Arguments) -> Arguments:
        """Replicate plain tensors of one element; ArgumentError for others, as PyTorch, unless
        ``implicit_replication`` replicates them."""
        result = []
        for a in args:
            if not isinstance(a, Value) or a._backend is self:
                result.append(a)
            elif isinstance(a._backend, MeshBackend):
                raise ArgumentError(
                    f"{op.name}: DTensors of two meshes, {self.mesh!r} and {a._backend.mesh!r}, cannot be"
                    " combined. Redistribute by to_local() and from_local()."
                )
            elif a.raw.size == 1 or _replicates(op):
                if a.raw.ndim and not _replicates(op):
                    warnings.warn(
                        f"{op.name}: a plain tensor of {list(a.raw.shape)} is replicated, as it has one"
                        " element. Distribute it, or make it 0-d, to avoid this warning.",
                        TenonWarning,
                        stacklevel=2,
                    )
                result.append(self.tensor_type.from_local(a, self.mesh))  # type: ignore[union-attr]
            else:
                raise ArgumentError(
                    f"{op.name}: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to"
                    f" DTensor before calling distributed operators! A tensor of {list(a.raw.shape)} is not"
                    " distributed. Use distribute_tensor() or DTensor.from_local()."
                )
        return tuple(result)

    # --- kernels ---

    def bind(self, op: Op) -> Kernel:
        """The kernel of ``op`` on sharded arrays."""
        kernel = self._bind(op)
        return kernel if op.kind in _ELEMENT_BY_ELEMENT else Exact(op, self, kernel)

    def _bind(self, op: Op) -> Kernel:
        if (
            isinstance(op, Composite)
            and op.kind is not Kind.ELEMENTWISE
            and not _has_rule(op)
            and op.in_parts is None
        ):
            return super().bind(op)
        if op.kind is Kind.RANDOM:
            return Drawn(op, self)
        if op.kind is Kind.CREATE:
            return Created(op, self)
        parts: Kernel | None = None
        if op.in_parts is not None:
            parts = partial(op.in_parts, self.raw)
        elif isinstance(op, Composite):
            parts = super().bind(op)
        return Sharded(op, self, parts)

    def for_short(self, op: Op, kernel: Kernel) -> Kernel:
        """The kernel itself: it selects one for 16-bit floats by the local parts."""
        return kernel

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a DTensor cannot be pickled or copied to another process: its mesh belongs to this job. Save"
            " full_tensor(), or to_local() of each rank."
        )


def _replicates(op: Op) -> bool:
    """Whether ``op`` replicates plain tensors."""
    return IMPLICIT.get() is Implicit.ALL or (IMPLICIT.get() is Implicit.CLASS_LOSSES and op.is_class_loss)


def _has_rule(op: Op) -> bool:
    return type(op).sharding_rule is not Op.sharding_rule


def mesh_backend(mesh: DeviceMesh, device: Backend) -> MeshBackend:
    """The backend of tensors that are sharded over ``mesh``, and whose parts are arrays of ``device``.

    There is one for all equal meshes of a rank, so that their tensors combine; it lives as long as the ranks'
    communicator, which the mesh refers to.
    """
    known: dict[tuple[DeviceMesh, Backend], MeshBackend] = world.get_communicator().kept
    backend = known.get((mesh, device))
    if backend is None:
        backend = known[mesh, device] = MeshBackend(mesh, device)
    return backend
