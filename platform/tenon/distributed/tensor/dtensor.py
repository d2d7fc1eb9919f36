"""``DTensor``: a tensor of which each rank of a device mesh stores a part.

It has the shape and the value of the whole; ops on it compute what they compute on plain tensors, and
communicate where they have to. All ranks of the mesh run the same ops in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenon.autograd.function import Function
from tenon.autograd.function_context import FunctionCtx
from tenon.compat.overriding import PLAIN
from tenon.distributed.device_mesh import DeviceMesh, current_mesh
from tenon.distributed.tensor.chunks import local_part
from tenon.distributed.tensor.dtensor_spec import DTensorSpec, TensorMeta
from tenon.distributed.tensor.mesh_backend import MeshBackend, mesh_backend
from tenon.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard, normalized
from tenon.distributed.tensor.sharded_array import Placements, ShardedArray, of_gradient
from tenon.engine.aval import Aval
from tenon.errors import ArgumentError, ShapeError, UnsavableError, UnsupportedError
from tenon.kernels.whole_arrays import beside
from tenon.nn.parameter import Parameter
from tenon.tensors.creation.create import legacy_tensor
from tenon.tensors.tensor import Tensor

__all__ = ["DTensor"]


class DTensor(Tensor, plain=True):
    """A tensor sharded over, or replicated on, the ranks of ``device_mesh``, by ``placements``.

    Create one with ``distribute_tensor`` or ``DTensor.from_local``. Source: torch.distributed.tensor.DTensor.

    >>> import tenon
    >>> from tenon.distributed import init_device_mesh
    >>> from tenon.distributed.tensor import Shard, distribute_tensor
    >>> mesh = init_device_mesh("cpu", (1,))
    >>> x = distribute_tensor(tenon.arange(3.0), mesh, [Shard(0)])
    >>> (x * 2).placements, (x * 2).to_local()
    ((Shard(dim=0),), tensor([0., 2., 4.]))
    """

    __slots__ = ()

    raw: ShardedArray

    def __new__(cls, *args: object, **kwargs: object) -> Any:  # never returns
        """Raise: ``from_local`` and ``distribute_tensor`` create DTensors."""
        raise TypeError(
            f"{cls.__name__}() cannot be called: use distribute_tensor(tensor, mesh, placements) for a tensor"
            " that is whole, or DTensor.from_local(part, mesh, placements) for one of which each rank has a"
            " part."
        )

    @staticmethod
    def from_local(
        local_tensor: Tensor,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
        *,
        run_check: bool = False,
        shape: Sequence[int] | None = None,
        stride: Sequence[int] | None = None,
        grad_placements: Sequence[Placement] | None = None,
    ) -> DTensor:
        """A DTensor of the parts that the ranks pass; replicated if no ``placements`` are given.

        Without ``shape`` the parts are taken to be equal, so that sharded axes are as many times as long.
        ``run_check`` broadcasts replicated parts from the first rank, and compares shapes, dtypes and
        ``requires_grad`` of the parts. ``stride`` has no effect, and needs ``shape``.
        ``grad_placements`` are those of the gradient in the backward pass.
        Differentiable. Raises ``ShapeError`` if the part does not fit ``shape``.
        """
        mesh = current_mesh(device_mesh, "from_local")
        if not isinstance(local_tensor, Tensor) or isinstance(local_tensor, DTensor):
            raise ArgumentError(
                f"DTensor.from_local: local_tensor is a {type(local_tensor).__name__}; pass this rank's part,"
                " a plain tensor."
            )
        placed = normalized(placements, mesh.ndim, local_tensor.ndim, "from_local")
        gradient = None
        if grad_placements is not None:
            gradient = normalized(
                grad_placements, mesh.ndim, local_tensor.ndim, "from_local(grad_placements=)"
            )
        if stride is not None and shape is None:
            raise ArgumentError(
                "DTensor.from_local: Please pass both shape and stride at the same time: stride= alone does"
                " not tell the size of the whole."
            )
        whole = _whole_shape(local_tensor, mesh, placed) if shape is None else tuple(shape)
        result = _counted_with(local_tensor, _FromLocal.apply(local_tensor, mesh, placed, whole, gradient))
        if run_check:
            _check_parts(result)
        return result

    def to_local(self, *, grad_placements: Sequence[Placement] | None = None) -> Tensor:
        """This rank's part, as a plain tensor that shares its memory. Differentiable.

        A rank outside of the mesh has no elements: a vector of length 0, and of a tensor without axes 0.
        The gradient that arrives is taken to be a part by ``grad_placements``; by default by those of this
        tensor.
        """
        given = None
        if grad_placements is not None:
            given = normalized(
                grad_placements, self.device_mesh.ndim, self.ndim, "to_local(grad_placements=)"
            )
        if not self.requires_grad:
            return self._local_tensor
        return _counted_with(self, _ToLocal.apply(self, given))

    def full_tensor(self, *, grad_placements: Sequence[Placement] | None = None) -> Tensor:
        """The whole value, on every rank. Collective and differentiable."""
        return self.redistribute(placements=self.raw.replicated).to_local(grad_placements=grad_placements)

    def redistribute(
        self,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
        *,
        async_op: bool = False,
        forward_dtype: Any = None,  # a dtype
        backward_dtype: Any = None,  # a dtype
    ) -> DTensor:
        """The same value by other ``placements``. Collective and differentiable.

        ``async_op`` has no effect. ``forward_dtype`` casts before; ``backward_dtype`` casts the gradient.
        Raises ``ArgumentError`` for another mesh, and for ``Partial`` unless it is that already.
        """
        if device_mesh is not None and device_mesh != self.device_mesh:
            raise ArgumentError(
                f"redistribute: the tensor is on {self.device_mesh!r}; moving it to {device_mesh!r} is not"
                " supported. Use full_tensor() and distribute_tensor()."
            )
        if placements is None:
            raise ArgumentError("placements is needed for redistribute! Pass one for each mesh dimension.")
        placed = normalized(placements, self.device_mesh.ndim, self.ndim, "redistribute")
        for now, then in zip(self.placements, placed, strict=True):
            if isinstance(then, Partial) and now != then:
                raise ArgumentError(
                    f"Can not redistribute from {now!r} to {then!r}, redistributing to Partial is for"
                    " internal use only! Use DTensor.from_local() for partial results of ranks."
                )
        source = self if forward_dtype is None else self.to(forward_dtype)
        if placed == source.raw.placements and backward_dtype is None and not source.requires_grad:
            return source
        result = _Redistribute.apply(source, placed, backward_dtype)
        return result if placed != source.raw.placements else _counted_with(source, result)

    @property
    def device_mesh(self) -> DeviceMesh:
        """The mesh."""
        return self.raw.mesh

    @property
    def placements(self) -> tuple[Placement, ...]:
        """One placement for each dimension of the mesh."""
        return self.raw.placements

    @property
    def _local_tensor(self) -> Tensor:
        local, backend = self.raw.local, self.raw.backend
        if not backend.member and local.ndim > 1:
            local = local.with_shape((0,)) if isinstance(local, Aval) else local.reshape(0)
        return _counted_with(self, Tensor._of(local, backend.device))

    @property
    def _spec(self) -> DTensorSpec:
        meta = TensorMeta(self.shape, self.stride(), self.dtype)
        return DTensorSpec(self.device_mesh, self.placements, meta)

    # --- conversions that would gather silently ---

    def numpy(self, *, force: bool = False) -> np.ndarray:
        """Raise: ``full_tensor().numpy()`` gathers, ``to_local().numpy()`` is the part."""
        raise self._refused("numpy()")

    def tolist(self) -> Any:  # never returns
        """Raise, as ``numpy``."""
        raise self._refused("tolist()")

    def __array__(self, dtype: object = None, copy: bool | None = None) -> np.ndarray:
        raise self._refused("conversion to a NumPy array")

    def untyped_storage(self) -> Any:  # never returns
        """Raise: there is no memory of the whole."""
        raise self._refused("untyped_storage()")

    def data_ptr(self) -> int:
        """Raise, as ``untyped_storage``."""
        raise self._refused("data_ptr()")

    def new(self, *args: object, **kwargs: Any) -> Tensor:  # as the constructor ``Tensor`` takes them
        """A tensor of this dtype on the mesh, replicated, from sizes or data."""
        made: Tensor = beside(self, legacy_tensor(Tensor, args, kwargs, self.dtype))
        return made

    def as_strided(self, *args: object, **kwargs: object) -> Any:  # never returns
        """Raise, as ``untyped_storage``."""
        raise self._refused("as_strided()")

    def _refused(self, what: str) -> UnsupportedError:
        return UnsupportedError(
            f"{what} is not supported for DTensors, of which this rank has a part of"
            f" {list(self.raw.local.shape)}. Use full_tensor() on all ranks for the whole, or to_local() for"
            " the part."
        )

    def __copy__(self) -> DTensor:
        return type(self)._of(self.raw, self._backend).requires_grad_(self.requires_grad)

    def __reduce_ex__(self, protocol: object) -> Any:  # never returns
        raise UnsavableError(
            "a DTensor cannot be pickled or sent to another process, as its mesh belongs to this job. Save"
            " full_tensor(), which all ranks call, or to_local()."
        )

    def __create_chunk_list__(self) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """``(offset, sizes)`` of this rank's part in the whole."""
        coordinate = self.device_mesh.get_coordinate()
        if coordinate is None:
            return []
        sizes, offset = local_part(self.raw.shape, self.placements, self.device_mesh.shape, coordinate)
        return [(offset, sizes)]

    def __repr__(self, *, tensor_contents: str | None = None) -> str:  # type: ignore[override]
        return (
            f"DTensor(local_tensor={self._local_tensor!r}, device_mesh={self.device_mesh!r},"
            f" placements={self.placements})"
        )


class DTensorParameter(DTensor, Parameter, plain=True):
    """An ``nn.Parameter`` that is a DTensor."""

    def __new__(cls, data: DTensor, requires_grad: bool = True) -> Any:  # as Parameter
        """As ``nn.Parameter(data)``."""
        return Parameter(data, requires_grad)

    def __repr__(self, *, tensor_contents: str | None = None) -> str:  # type: ignore[override]
        return "Parameter containing:\n" + DTensor.__repr__(self)


PLAIN.update((DTensor, DTensorParameter))
MeshBackend.tensor_type = DTensor
MeshBackend.parameter_type = DTensorParameter


def wrap(local: Tensor, mesh: DeviceMesh, placements: Placements, shape: tuple[int, ...]) -> DTensor:
    """A DTensor without history whose part is ``local``."""
    backend = mesh_backend(mesh, local._backend)
    if not backend.member:
        local = Tensor._of(backend.device.xp.zeros((0,) * len(shape), local.raw.dtype), backend.device)
    array = ShardedArray(local.raw, shape, placements, backend)
    expected = backend.part_of(shape, placements)
    if backend.member and tuple(local.shape) != expected:
        raise ShapeError(
            f"a part of shape {list(local.shape)} does not fit: on rank {mesh.get_rank()} a tensor of"
            f" {list(shape)} by {placements} has a part of {list(expected)}. Pass shape= for unequal parts."
        )
    return DTensor._of(array, backend)


class _Context(FunctionCtx):
    """What the functions below keep."""

    gradient: Placements
    mesh: DeviceMesh
    shape: tuple[int, ...]
    dtype: Any  # a dtype or None
    kind: Any  # a dtype


class _FromLocal(Function):
    """``from_local`` in the graph."""

    @staticmethod
    def forward(
        ctx: _Context,
        local: Tensor,
        mesh: DeviceMesh,
        placements: Placements,
        shape: tuple[int, ...],
        gradient: Placements | None,
    ) -> DTensor:
        ctx.gradient = of_gradient(placements) if gradient is None else gradient
        return wrap(local, mesh, placements, shape)

    @staticmethod
    def backward(ctx: _Context, grad: DTensor) -> tuple[Tensor | None, ...]:
        return grad.redistribute(placements=ctx.gradient).to_local(), None, None, None, None


class _ToLocal(Function):
    """``to_local`` in the graph."""

    @staticmethod
    def forward(ctx: _Context, x: DTensor, gradient: Placements | None) -> Tensor:
        ctx.mesh, ctx.shape = x.device_mesh, x.raw.shape
        ctx.gradient = of_gradient(x.placements) if gradient is None else gradient
        local = x._local_tensor
        return local.view(local.shape)

    @staticmethod
    def backward(ctx: _Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        return wrap(grad, ctx.mesh, ctx.gradient, ctx.shape), None


class _Redistribute(Function):
    """``redistribute`` in the graph: the gradient gets the placements of the input."""

    @staticmethod
    def forward(
        ctx: _Context,
        x: DTensor,
        placements: Placements,
        dtype: Any,  # a dtype or None
    ) -> DTensor:
        ctx.gradient, ctx.dtype, ctx.kind = of_gradient(x.placements), dtype, x.dtype
        array = x.raw.redistributed(placements)
        return DTensor._of(array if array is not x.raw else array.like(array.local), x._backend)

    @staticmethod
    def backward(ctx: _Context, grad: DTensor) -> tuple[Tensor | None, ...]:
        if ctx.dtype is not None:
            grad = grad.to(ctx.dtype)
        return grad.redistribute(placements=ctx.gradient).to(ctx.kind), None, None


def _counted_with(x: Tensor, alias: Any) -> Any:  # of the same class
    """``alias``, which shares the memory of ``x``, with its version counter."""
    alias._version_counter = x._counter()
    return alias


def _whole_shape(local: Tensor, mesh: DeviceMesh, placements: Placements) -> tuple[int, ...]:
    shape = [int(s) for s in local.shape]
    for placement, count in zip(placements, mesh.shape, strict=True):
        if isinstance(placement, Shard):
            shape[placement.dim] *= count
    return tuple(shape)


def _check_parts(x: DTensor) -> None:
    """Compare the shapes of the parts along each mesh dimension, and make replicas equal to the first."""
    mesh, array = x.device_mesh, x.raw
    if mesh.get_coordinate() is None or isinstance(array.local, Aval):
        return
    for dim, placement in enumerate(x.placements):
        group = mesh.get_group(dim)
        given = f"{array.dtype} {list(array.shape)}, requires_grad={x.requires_grad}"
        texts = [text.decode() for text in group.all_gather_bytes(given.encode(), name="from_local")]
        if len(set(texts)) > 1:
            raise ShapeError(
                f"DTensor.from_local: ranks {list(group.ranks)} passed parts of different tensors:"
                f" {'; '.join(texts)}. Give all the same dtype and requires_grad. Pass shape= for unequal"
                " parts."
            )
        if isinstance(placement, Replicate):
            device = array.backend.device
            host = group.broadcast(device.to_host(array.local), 0, name="from_local").wait()
            array.local[...] = device.from_host(host, device.device_of(array.local))
