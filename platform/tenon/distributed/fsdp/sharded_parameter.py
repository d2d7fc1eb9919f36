"""One parameter of a ``fully_shard`` module: its shard, and the whole that exists while it is gathered.

The shard is a ``DTensor``, which optimizers and ``state_dict`` see. Rows of the split axis that a rank lacks,
as 5 rows on 4 ranks are 2, 2, 1 and 0, are padded in memory, as collectives exchange equal parts: the rows
of all ranks one after another are the whole parameter, with padding at the end only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon.device import CPU, Device
from tenon.distributed.fsdp.parameter_layout import layout_of
from tenon.distributed.fsdp.released import ReleasedArray, local_of
from tenon.distributed.tensor.dtensor import DTensor, wrap
from tenon.distributed.tensor.placement_types import Shard
from tenon.engine.aval import Aval
from tenon.engine.types import Array, NumpyDType
from tenon.errors import ArgumentError, ModuleError, NoDataError
from tenon.kernels.backend import Backend, backend_for
from tenon.nn.module import Module
from tenon.nn.parameter import Parameter
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.distributed.device_mesh import DeviceMesh

#: Key in the ``__dict__`` of a plain parameter that has been sharded: its name. Modules outside of the call
#: may still have it.
SHARDED_AS = "_fsdp_sharded_as"
#: A module, and the name of the parameter there.
Owner = tuple[Module, str]


class ShardedParameter:
    """A parameter of ``owners``, more than one if it is shared, split along ``axis`` over a mesh.

    The last mesh dimension splits it; one before that replicates the shards. With ``offloads`` the shard is
    on the CPU, wherever the whole is.
    """

    def __init__(
        self,
        parameter: Parameter,
        owners: Sequence[Owner],
        name: str,
        mesh: DeviceMesh,
        placement: Shard,
        offloads: bool = False,
    ) -> None:
        _check_parameter(parameter, name)
        self.layout = layout_of(parameter, mesh, name)
        self.owners, self.name, self.mesh = list(owners), name, self.layout.mesh
        self.shape = self.layout.shape
        """The shape of the whole; of a tensor-parallel parameter, of this rank's part."""
        self.axis = placement.dim % max(parameter.ndim, 1)
        self.placements = self.layout.placements(self.axis)
        self.ranks = mesh.size(mesh.ndim - 1)
        self.rank = mesh.get_local_rank(mesh.ndim - 1)
        self.rows = -(-self.shape[self.axis] // self.ranks)
        """The rows of the split axis that each rank has, padding included."""
        self.moved = (self.shape[self.axis], *self.shape[: self.axis], *self.shape[self.axis + 1 :])
        """The shape with the split axis first, as it is in memory."""
        self.count = self.rows * math.prod(self.moved[1:])
        """The number of elements of a shard, padding included."""
        self.whole_size = math.prod(self.shape)
        self._offloads = offloads
        self._backend, self._device = parameter._backend.own, parameter.device
        """Where the whole is."""
        self._storage: np.ndarray | None = None
        self._part: Array = None
        self.held: np.ndarray | None = None
        """The sum of gradients of the whole that wait for their reduction, in its dtype."""
        self.sharded = self._shard(parameter)
        whole = self.layout.gathered(self.released(self.sharded.raw.dtype), self._backend)
        self.whole = Parameter(whole, parameter.requires_grad)
        """The gathered parameter, which modules have in forward and backward."""
        self._version = self.sharded._counter()[0]
        parameter.__dict__[SHARDED_AS] = name
        self.show(self.sharded)

    # --- the shard ---

    def _shard(self, parameter: Parameter) -> Parameter:
        """A DTensor of this rank's rows of ``parameter``, which every rank has."""
        local = local_of(parameter.raw)
        if isinstance(local, Aval):
            part = Tensor._of(local.with_shape(self._part_shape()), self._backend)
        else:
            rows = np.moveaxis(self.layout.host_part(parameter), self.axis, 0)[self._own_rows()]
            part = self._stored(rows, self._backend, parameter.device)
        tensor = wrap(part, self.mesh, self.placements, self.layout.whole_shape)
        self._part = tensor.raw.local
        result = Parameter(tensor, parameter.requires_grad)
        own = {key: value for key, value in parameter.__dict__.items() if key not in ("_grad", "grad")}
        result.__dict__.update(own)
        return result

    def _own_rows(self) -> slice:
        size = self.shape[self.axis]
        start = min(self.rows * self.rank, size)
        return slice(start, min(start + self.rows, size))

    def _part_shape(self) -> tuple[int, ...]:
        rows = self._own_rows()
        return (*self.shape[: self.axis], rows.stop - rows.start, *self.shape[self.axis + 1 :])

    def _stored(self, rows: np.ndarray, backend: Backend, device: Device) -> Tensor:
        """Copy ``rows``, along the first axis into padded memory; return the part, on ``device`` or the CPU.
        Rows that need no padding and have memory of their own are kept as they are."""
        backend = backend_for(CPU) if self._offloads else backend
        if backend.array_type is not np.ndarray:
            part = np.moveaxis(np.ascontiguousarray(rows), 0, self.axis)
            return Tensor._of(backend.from_host(part, device), backend)
        if self.axis:
            return Tensor._of(np.ascontiguousarray(np.moveaxis(rows, 0, self.axis)), backend)
        if rows.size == self.count and rows.flags.c_contiguous and _owns_memory(rows):
            self._storage = rows.reshape(-1)
            return Tensor._of(self.part_of(self._storage), backend)
        self._storage = np.zeros(self.count, rows.dtype)
        self._storage[: rows.size] = rows.reshape(-1)
        return Tensor._of(self.part_of(self._storage), backend)

    def part_of(self, flat: np.ndarray) -> np.ndarray:
        """The part in ``flat`` padded memory, by the axes of the parameter."""
        rows = self._own_rows()
        count = rows.stop - rows.start
        moved = flat[: count * math.prod(self.moved[1:])].reshape(count, *self.moved[1:])
        return np.moveaxis(moved, 0, self.axis)

    def adopt(self) -> None:
        """Take over what other code has made of the shard: new memory, as by ``to`` and ``to_empty``, or a
        new parameter, as by ``load_state_dict(assign=True)``.

        Raises ``ModuleError`` for one that is not such a shard.
        """
        module, name = self.owners[0]
        current: Any = module._parameters[name]  # None or another type if it has been replaced
        if self.whole.requires_grad is not self.sharded.requires_grad:  # frozen, or not any more
            self.whole.requires_grad_(self.sharded.requires_grad)
        if current is self.sharded and current.raw.local is self._part:
            return
        if current is not self.sharded and current is not self.whole:
            self._check_replacement(current)
            self.sharded = current
            for owner, attribute in self.owners[1:]:
                owner._parameters[attribute] = current
            self.whole.requires_grad_(current.requires_grad)
        array = self.sharded.raw
        if array.local is self._part:
            return
        if isinstance(array.local, Aval):
            self._part, self._storage = array.local, None
        else:
            if not self._offloads:
                self._backend, self._device = array.backend.device, self.sharded.device
            elif self._device.type == "meta":
                self._device = Device(self.mesh.device_type)
                self._backend = backend_for(self._device)
            host = array.backend.device.to_host(array.local)
            rows = np.moveaxis(host, self.axis, 0)
            part = self._stored(rows, array.backend.device, self.sharded.device)
            self._part = part.raw
            self.sharded.raw = array.like(part.raw)
        self.whole._backend = self.layout.gathered(local_of(self.whole.raw), self._backend)._backend

    def _check_replacement(self, current: object) -> None:
        fits = (
            isinstance(current, DTensor)
            and current.raw.shape == self.layout.whole_shape
            and current.device_mesh == self.mesh
            and current.placements == self.placements
        )
        if not fits:
            described = (
                f"a DTensor of {list(current.raw.shape)} by {current.placements}"
                if isinstance(current, DTensor)
                else f"a {type(current).__name__}"
            )
            raise ModuleError(
                f"fully_shard: parameter {self.name!r} has been replaced by {described}, where a DTensor of"
                f" {list(self.layout.whole_shape)} by {self.placements} is expected. Copy values into the"
                " parameter instead, or load a state_dict of DTensors."
            )

    def source(self, dtype: NumpyDType | None) -> np.ndarray:
        """The shard as a flat, padded array of the host, in ``dtype`` if given."""
        array = self.sharded.raw
        if isinstance(array.local, Aval):
            raise NoDataError(
                f"fully_shard: parameter {self.name!r} is on the meta device and has no values. Call"
                " module.to_empty(device=...) and initialize the parameters before the first forward."
            )
        flat = self._storage
        if flat is None:  # on another device, or not split along the first axis
            host = array.backend.device.to_host(array.local)
            moved = np.moveaxis(host, self.axis, 0).reshape(-1)
            flat = np.zeros(self.count, moved.dtype)
            flat[: moved.size] = moved
        return flat if dtype is None or flat.dtype == dtype else flat.astype(dtype)

    # --- the whole ---

    def released(self, dtype: NumpyDType) -> ReleasedArray:
        """What stands for the whole while it is not gathered."""
        return ReleasedArray(self.name, self.shape, dtype)

    def whole_of(self, rows: np.ndarray) -> np.ndarray:
        """The parameter in gathered ``rows``, ``[ranks, count]``, without the padding."""
        moved = rows.reshape(-1)[: math.prod(self.moved)].reshape(self.moved)
        return np.moveaxis(moved, 0, self.axis)

    def gathered(self, rows: np.ndarray, read_only: bool = False) -> None:
        """Make ``rows`` the value of the whole, ``read_only`` if other ranks read them too."""
        array = np.ascontiguousarray(self.whole_of(rows))  # a copy if another axis than the first is split
        if read_only and array.base is not None:
            array = array.view()
            array.flags.writeable = False
        if self._backend.array_type is not np.ndarray:
            array = self._backend.from_host(array, self._device)
        self.whole.raw = self.layout.gathered(array, self._backend).raw
        self.note_change()

    @property
    def version(self) -> int:
        """How often the shard has been modified."""
        return self.sharded._counter()[0]

    @property
    def has_changed(self) -> bool:
        """Whether the shard has been modified since the last ``note_change``."""
        return self.version != self._version

    def note_change(self) -> None:
        """Give the whole a new version if the shard has been modified: a graph of before is out of date."""
        if self.has_changed:
            self._version = self.sharded._counter()[0]
            self.whole._counter()[0] += 1

    def release(self) -> None:
        """Drop the whole."""
        if not isinstance(local_of(self.whole.raw), ReleasedArray):
            released = self.released(self.whole.raw.dtype)
            self.whole.raw = self.layout.gathered(released, self._backend).raw

    def show(self, parameter: Parameter) -> None:
        """Make ``parameter`` the attribute of the modules: the shard or the whole."""
        for module, name in self.owners:
            if module._parameters.get(name) is not parameter:
                module._parameters[name] = parameter

    def own_part_of(self, whole: np.ndarray) -> np.ndarray:
        """This rank's rows of an array of the shape of the whole."""
        return np.moveaxis(np.moveaxis(whole, self.axis, 0)[self._own_rows()], 0, self.axis)

    def write_back(self, whole: Tensor) -> None:
        """Copy this rank's rows of ``whole`` into the shard."""
        array = self.sharded.raw
        part = self.own_part_of(self.layout.host_part(whole))
        device = array.backend.device
        if device.array_type is not np.ndarray:
            part = device.from_host(np.ascontiguousarray(part), self.sharded.device)
        self.sharded._settle()
        array.local[...] = part
        self.sharded._counter()[0] += 1

    # --- gradients ---

    @property
    def has_gradient(self) -> bool:
        """Whether the whole has a gradient that is not reduced."""
        return self.whole._grad is not None or self.held is not None

    def hold_gradient(self, dtype: NumpyDType) -> None:
        """Move the gradient of the whole to ``held``, in ``dtype``, if that is not its own."""
        gradient = self.whole._grad
        if gradient is None or gradient.raw.dtype == dtype:
            return
        host = self.layout.host_part(gradient)
        if self.held is None:
            self.held = host.astype(dtype)
        else:
            self.held += host
        self.whole.grad = None

    def drop_gradient(self) -> None:
        """Forget the gradient of the whole."""
        self.whole.grad = self.held = None

    def receive(self, reduced: np.ndarray) -> None:
        """Accumulate a ``reduced`` gradient, and call the post-accumulate hooks of the shard, as of an
        optimizer that steps in backward."""
        self.accumulate(reduced)
        for hook in list(self.sharded.__dict__.get("_post_accumulate_hooks", {}).values()):
            hook(self.sharded)

    def accumulate(self, reduced: np.ndarray) -> None:
        """Add the ``reduced`` gradient of the shard, flat and padded, to that of the sharded parameter."""
        array = self.sharded.raw
        device = array.backend.device
        part = np.ascontiguousarray(self.part_of(reduced.astype(array.dtype, copy=False)))
        if self.sharded.grad is not None:
            self.sharded.grad._settle()
            local = self.sharded.grad.raw.local
            local += part if device.array_type is np.ndarray else device.from_host(part, self.sharded.device)
            self.sharded.grad._counter()[0] += 1
            return
        if device.array_type is not np.ndarray:
            part = device.from_host(part, self.sharded.device)
        local = Tensor._of(part, device)
        self.sharded.grad = wrap(local, self.mesh, self.placements, self.layout.whole_shape)

    def gather_gradient(self) -> None:
        """Give the whole the gradient of the shards; collective."""
        gradient: Any = self.sharded.grad  # a DTensor or None
        if gradient is None:
            self.whole.grad = None
            return
        array = gradient.raw.redistributed(self.layout.gathered_placements, "gradient")
        self.whole.grad = self.layout.gathered(array.local, array.backend.device)


def _owns_memory(array: np.ndarray) -> bool:
    """Whether ``array`` is all of the memory that it, or the array that it views, has."""
    base = array if array.base is None else array.base
    return isinstance(base, np.ndarray) and base.base is None and base.nbytes == array.nbytes


def _check_parameter(parameter: Parameter, name: str) -> None:
    if parameter.ndim == 0:
        raise ArgumentError(
            f"fully_shard doesn't support scalar parameters. Change {name} to a 1D tensor with numel equal to"
            " 1."
        )
