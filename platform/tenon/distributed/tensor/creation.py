"""Create DTensors: from whole tensors, of modules, and filled with numbers."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypedDict, Unpack

import numpy as np

from tenon.distributed.device_mesh import DeviceMesh, current_mesh
from tenon.distributed.tensor.chunks import chunk_of
from tenon.distributed.tensor.dtensor import DTensor, wrap
from tenon.distributed.tensor.mesh_backend import MeshBackend, mesh_backend
from tenon.distributed.tensor.placement_types import Partial, Placement, Shard, normalized, split_order
from tenon.distributed.tensor.redistribution import rows_of
from tenon.engine.aval import Aval
from tenon.engine.types import Array, Forwarded
from tenon.errors import ArgumentError
from tenon.nn.module import Module
from tenon.nn.parameter import Parameter
from tenon.tensors.creation import factories, random_factories
from tenon.tensors.layout import check_layout
from tenon.tensors.methods.movement import sizes
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.dtypes import DTypeLike
    from tenon.tensors.types import SizeLike

#: Functions of users for ``distribute_module``.
PartitionFunction = Callable[[str, Module, DeviceMesh], None]
ConvertFunction = Callable[[Module, Forwarded, DeviceMesh], Forwarded]


def distribute_tensor(
    tensor: Tensor,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> DTensor:
    """Distribute ``tensor``, a leaf that every rank has in the same shape; replicated by default.

    The values are those of rank ``src_data_rank`` of each mesh dimension, or with None each rank's own,
    without communication. The result is a leaf; it requires grad if ``tensor`` does.
    Source: torch.distributed.tensor.distribute_tensor.
    """
    mesh = current_mesh(device_mesh, "distribute_tensor")
    if not isinstance(tensor, Tensor):
        raise ArgumentError(f"distribute_tensor: tensor is a {type(tensor).__name__}, not a Tensor.")
    if not tensor.is_leaf and not isinstance(tensor, DTensor):
        raise ArgumentError(
            "distribute_tensor should be used to distribute leaf tensors! but found non-leaf tensor! Pass"
            " tensor.detach(), or use DTensor.from_local(), through which gradients flow."
        )
    placed = normalized(placements, mesh.ndim, tensor.ndim, "distribute_tensor")
    if isinstance(tensor, DTensor):
        if tensor.device_mesh != mesh or tensor.placements != placed:
            where = "device mesh" if tensor.device_mesh != mesh else "placements"
            raise ArgumentError(
                f"distribute_tensor: Cannot distribute a DTensor to a different {where}: the tensor is on"
                f" {tensor.device_mesh!r} by {tensor.placements}, not on {mesh!r} by {placed}. Use"
                " redistribute(), or full_tensor() for another mesh."
            )
        return tensor
    if src_data_rank is not None and not all(0 <= src_data_rank < size for size in mesh.shape):
        raise ArgumentError(
            f"distribute_tensor: src_data_rank={src_data_rank} has to be a rank of each dimension of"
            f" {mesh!r}, or None."
        )
    plain = tensor.detach()
    backend = mesh_backend(mesh, plain._backend)
    local = plain
    if backend.member:
        local = Tensor._of(_scattered(plain, backend, placed, src_data_rank), backend.device)
    result = wrap(local, mesh, placed, tuple(int(s) for s in plain.shape))
    return result.requires_grad_(tensor.requires_grad)


def _scattered(
    plain: Tensor, backend: MeshBackend, placements: Sequence[Placement], source: int | None
) -> Array:
    """This rank's part, an array of the device, of the tensor that the first rank has."""
    whole = backend.replicate(plain.raw)
    if source is None or isinstance(plain.raw, Aval):
        part = whole.redistributed(tuple(placements)).local
        return part.copy() if part is plain.raw and not isinstance(part, Aval) else part
    mesh, device = backend.mesh, backend.device
    host = np.ascontiguousarray(device.to_host(plain.raw)).reshape(plain.raw.shape)
    for dim in split_order(placements):
        placement = placements[dim]
        group, count = mesh.get_group(dim), mesh.size(dim)
        if isinstance(placement, Shard):
            axis = placement.dim
            size = chunk_of(host.shape[axis], count, mesh.get_local_rank(dim))[1]
            rows = rows_of(host, axis, count)
            part = group.scatter(rows, np.empty(rows.shape[1:], rows.dtype), source, name="distribute_tensor")
            host = np.ascontiguousarray(part[(slice(None),) * axis + (slice(size),)])
        else:
            host = group.broadcast(host, source, name="distribute_tensor").wait()
            if isinstance(placement, Partial):
                rank = mesh.get_local_rank(dim)
                keeps = rank == 0 or placement.reduce_op not in ("sum", "product")
                host = host if keeps else np.full_like(host, placement.reduce_op == "product")
    host = host.copy() if np.shares_memory(host, device.to_host(plain.raw)) else host
    return device.from_host(host, plain.device)


def distribute_module(
    module: Module,
    device_mesh: DeviceMesh | None = None,
    partition_fn: PartitionFunction | None = None,
    input_fn: ConvertFunction | None = None,
    output_fn: ConvertFunction | None = None,
) -> Module:
    """Make all parameters and buffers of ``module`` DTensors, in place; return it.

    ``partition_fn(name, submodule, mesh)`` may shard those of a submodule; the rest is replicated.
    ``input_fn(module, inputs, mesh)`` converts the inputs of each call, ``output_fn(module, outputs, mesh)``
    its result. Source: torch.distributed.tensor.distribute_module.
    """
    mesh = current_mesh(device_mesh, "distribute_module")
    if getattr(module, "_distribute_module_applied", False):
        raise ArgumentError(
            "distribute_module should only be called once on a module, but it has already been called on this"
            " module!"
        )
    for name, submodule in module.named_modules():
        if partition_fn is not None:
            partition_fn(name, submodule, mesh)
        _replicate(submodule, mesh)
    if input_fn is not None:
        convert = _with_module(input_fn, "input_fn")
        module.register_forward_pre_hook(lambda m, inputs: convert(m, inputs, mesh))
    if output_fn is not None:
        convert_back = _with_module(output_fn, "output_fn")
        module.register_forward_hook(lambda m, inputs, outputs: convert_back(m, outputs, mesh))
    module._distribute_module_applied = True
    return module


def _with_module(function: ConvertFunction, name: str) -> ConvertFunction:
    """``function``, or for PyTorch's older form without the module one that takes it."""
    if len(inspect.signature(function).parameters) != 2:
        return function
    warnings.warn(
        f"Deprecating {name} that takes two arguments (inputs, device_mesh), please use {name} that takes in"
        " (module, inputs, device_mesh) instead!",
        FutureWarning,
        stacklevel=3,
    )
    older: Callable[[Forwarded, DeviceMesh], Forwarded] = function  # type: ignore[assignment]
    return lambda module, value, mesh: older(value, mesh)


def _replicate(module: Module, mesh: DeviceMesh) -> None:
    """Replicate the module's own parameters and buffers that are not DTensors."""
    for name, parameter in list(module._parameters.items()):
        if parameter is not None and not isinstance(parameter, DTensor):
            module.register_parameter(
                name, Parameter(distribute_tensor(parameter.data, mesh), parameter.requires_grad)
            )
    for name, buffer in list(module._buffers.items()):
        if buffer is not None and not isinstance(buffer, DTensor):
            module._buffers[name] = distribute_tensor(buffer, mesh)


class Options(TypedDict, total=False):
    """The keywords of the functions below; ``layout`` is strided."""

    dtype: DTypeLike | None
    layout: object
    requires_grad: bool
    device_mesh: DeviceMesh | None
    placements: Sequence[Placement] | None


def _filled(
    make: Callable[..., Tensor], size: tuple[SizeLike, ...], options: Options, drawn: bool = False
) -> DTensor:
    """The DTensor of what ``make(shape, dtype=)`` returns; random numbers are drawn for the whole."""
    shape, name = sizes(size), make.__name__
    unknown = options.keys() - Options.__annotations__.keys()
    if unknown:
        raise TypeError(f"{name}() got an unexpected keyword argument {min(unknown)!r}")
    check_layout(name, {"layout": options["layout"]} if options.get("layout") is not None else {})
    mesh = current_mesh(options.get("device_mesh"), name)
    placed = normalized(options.get("placements"), mesh.ndim, len(shape), name)
    if any(isinstance(p, Partial) for p in placed):
        raise ArgumentError(f"{name}: placements={placed} cannot be partial. Use Shard or Replicate.")
    create = partial(make, dtype=options.get("dtype"), device=mesh.device_type)
    if drawn:
        result = distribute_tensor(create(shape), mesh, placed, src_data_rank=None)
    else:
        backend = mesh_backend(mesh, create((0,))._backend)
        result = wrap(create(backend.part_of(shape, placed)), mesh, placed, shape)
    return result.requires_grad_(options.get("requires_grad", False))


def zeros(*size: SizeLike, **options: Unpack[Options]) -> DTensor:
    """A DTensor of zeros; options: ``dtype``, ``requires_grad``, ``device_mesh`` and ``placements``."""
    return _filled(factories.zeros, size, options)


def ones(*size: SizeLike, **options: Unpack[Options]) -> DTensor:
    """A DTensor of ones, with the options of ``zeros``."""
    return _filled(factories.ones, size, options)


def empty(*size: SizeLike, **options: Unpack[Options]) -> DTensor:
    """An uninitialised DTensor, with the options of ``zeros``."""
    return _filled(factories.empty, size, options)


def full(size: SizeLike, fill_value: float, **options: Unpack[Options]) -> DTensor:
    """A DTensor filled with ``fill_value``, with the options of ``zeros``."""

    def full(shape: tuple[int, ...], **rest: Forwarded) -> Tensor:
        return factories.full(shape, fill_value, **rest)

    return _filled(full, (size,), options)


def rand(*size: SizeLike, **options: Unpack[Options]) -> DTensor:
    """Uniform random numbers in [0, 1), the same as ``tenon.rand`` draws with the same seed.

    With the options of ``zeros``; all ranks have to be seeded alike.
    """
    return _filled(random_factories.rand, size, options, drawn=True)


def randn(*size: SizeLike, **options: Unpack[Options]) -> DTensor:
    """Normal random numbers, the same as ``tenon.randn`` draws with the same seed.

    With the options of ``zeros``; all ranks have to be seeded alike.
    """
    return _filled(random_factories.randn, size, options, drawn=True)
