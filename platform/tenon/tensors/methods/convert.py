"""Dtype, device and copies: ``to``, ``float``, ``cpu``, ``clone``, ``detach``, ``contiguous``."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon import dtypes
from tenon.device import Device
from tenon.engine.op import table as f
from tenon.engine.operands import flag, need_flags, wrong_type
from tenon.engine.value import Value
from tenon.errors import ArgumentError
from tenon.kernels.backend import backend_for
from tenon.kernels.whole_arrays import beside
from tenon.tensors import memory_formats
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.extensions import EXTENSIONS
from tenon.tensors.layout import with_layout
from tenon.tensors.methods.family import Family
from tenon.tensors.methods.function_forms import as_function
from tenon.tensors.methods.type_names import TYPE_NAMES, dtype_and_device
from tenon.tensors.storage.untyped import is_shared
from tenon.tensors.wrong_arguments import only_tensors

if TYPE_CHECKING:
    from tenon.device import DeviceLike
    from tenon.dtypes import DTypeLike
    from tenon.engine.types import Arguments, Attrs
    from tenon.tensors.tensor import Tensor
    from tenon.tensors.types import Number, SizeLike


class Convert(Family):
    """Methods that copy or convert the values to another dtype, device or memory."""

    __slots__ = ()

    def to(self, *args: Any, **kwargs: Any) -> Tensor:  # overloads, which ``parse_to`` distinguishes
        """Return this tensor with another dtype, on another device, or both; itself if nothing changes.

        Call ``to(dtype)``, ``to(device)``, ``to(device, dtype)``, or ``to(other)`` for the dtype and device
        of another tensor. ``copy=True`` copies in any case; ``non_blocking`` has no effect;
        ``memory_format`` is that of the result. Gradients flow through. TypeError for other arguments.
        """
        memory_format = kwargs.get("memory_format")
        device, dtype, copy = parse_to(args, kwargs)
        x: Tensor = self
        if device is not None:
            x = _on_device(x, device)
        if dtype is not None and x.raw.dtype != dtype.numpy:
            x = f.cast(x, dtype=dtype.numpy)
        if memory_format is not None and memory_format is not memory_formats.preserve_format:
            x = memory_formats.in_format(x, memory_format)
        return f.clone(x) if copy and x is self else x

    def type(self, dtype: object = None, non_blocking: bool = False) -> str | Tensor:
        """Return the name of the tensor type, or convert to ``dtype``: a dtype, a tensor type or its name."""
        if dtype is None:
            prefix = "cuda." if self.is_cuda else ""
            return f"torch.{prefix}{TYPE_NAMES[dtypes.FROM_NUMPY[self.raw.dtype].name]}"
        kind, device = dtype_and_device(dtype)
        return self.to(kind) if device is None else self.to(device, kind)

    def type_as(self, other: Tensor) -> Tensor:
        """Return this tensor with the dtype and on the device of ``other``, as ``to(other)`` does."""
        only_tensors(other)
        return self.to(other)

    def cpu(self) -> Tensor:
        """Return a copy on the CPU; the tensor itself if it is there already."""
        return self.to("cpu")

    def cuda(self, device: DeviceLike = None, non_blocking: bool = False) -> Tensor:
        """Return a copy on a CUDA device, by default the current one; the tensor itself if it is there.

        ``non_blocking`` has no effect.
        """
        return self.to(Device("cuda") if device is None else Device(device))

    def to_dense(self, dtype: DTypeLike | None = None, *, masked_grad: bool | None = None) -> Tensor:
        """Return the tensor, as all tensors here are dense; converted if ``dtype`` is given."""
        return self if dtype is None else self.to(dtype)

    def contiguous(self, memory_format: memory_formats.memory_format | None = None) -> Tensor:
        """Return a copy whose elements are in C order, or in ``memory_format``; itself if they are."""
        return memory_formats.contiguous(self, memory_format)

    def is_contiguous(self, memory_format: memory_formats.memory_format | None = None) -> bool:
        """Whether the elements are in C order, or in ``memory_format``, without gaps."""
        return memory_formats.is_contiguous(self.raw, memory_format)

    @as_function()
    def clone(self, *, memory_format: memory_formats.memory_format | None = None) -> Tensor:
        """Return a copy in new memory, through which gradients flow back to this tensor.

        ``memory_format`` is the copy's; by default it has the strides of a dense tensor, else C order.
        """
        return memory_formats.clone(self, memory_format)

    @as_function()
    def detach(self) -> Tensor:
        """Return a tensor that shares this one's memory and is not part of its autograd graph."""
        return detached(self)

    @as_function(out="none")
    def detach_(self) -> Tensor:
        """Remove this tensor from its autograd graph, and return it: it becomes a leaf without gradient.

        ArgumentError for views of tensors in a graph.
        """
        if self._view is not None and self._view[0]._track:
            raise ArgumentError(
                "Can't detach views in-place. Use detach() instead. If you are using DistributedDataParallel,"
                " zero the gradients with set_to_none=True."
            )
        self._node, self._index, self._track = None, 0, False
        return self

    @with_layout
    def new_tensor(
        self,
        data: object,
        *,
        dtype: DTypeLike | None = None,
        device: DeviceLike = None,
        requires_grad: bool = False,
    ) -> Tensor:
        """Return a tensor with a copy of ``data``, a sequence, array or number; see ``tenon.tensor``.

        By default it has this tensor's dtype and device.
        """
        from tenon.tensors.creation.create import tensor

        dtype, device = dtype or self.dtype, device or self.device
        return beside(self, tensor(data, dtype=dtype, device=device, requires_grad=requires_grad))

    @with_layout
    def new_full(
        self,
        size: SizeLike,
        fill_value: Number,
        *,
        dtype: DTypeLike | None = None,
        device: DeviceLike = None,
        requires_grad: bool = False,
    ) -> Tensor:
        """Return a tensor of shape ``size`` filled with ``fill_value``.

        By default it has this tensor's dtype and device.
        """
        if fill_value is None:  # to ``_new``, memory as it is
            raise wrong_type("new_full", "fill_value", 2, fill_value, "Number")
        return _new(self, (size,), fill_value, dtype, device, requires_grad)

    @with_layout
    def new_zeros(
        self,
        *args: SizeLike,
        size: SizeLike | None = None,
        dtype: DTypeLike | None = None,
        device: DeviceLike = None,
        requires_grad: bool = False,
    ) -> Tensor:
        """Return a tensor of zeros; its shape is one sequence or several numbers.

        By default it has this tensor's dtype and device.
        """
        return _new(self, args if size is None else (size,), 0, dtype, device, requires_grad)

    @with_layout
    def new_ones(
        self,
        *args: SizeLike,
        size: SizeLike | None = None,
        dtype: DTypeLike | None = None,
        device: DeviceLike = None,
        requires_grad: bool = False,
    ) -> Tensor:
        """Return a tensor of ones; its shape is one sequence or several numbers.

        By default it has this tensor's dtype and device.
        """
        return _new(self, args if size is None else (size,), 1, dtype, device, requires_grad)

    @with_layout
    def new_empty(
        self,
        *args: SizeLike,
        size: SizeLike | None = None,
        dtype: DTypeLike | None = None,
        device: DeviceLike = None,
        requires_grad: bool = False,
    ) -> Tensor:
        """Return an uninitialised tensor; its shape is one sequence or several numbers.

        By default it has this tensor's dtype and device.
        """
        return _new(self, args if size is None else (size,), None, dtype, device, requires_grad)

    @as_function("resolve_neg")
    def resolve_conj(self) -> Tensor:
        """Return the tensor: conjugation is never deferred here."""
        return self

    resolve_neg = resolve_conj

    @property
    def real(self) -> Tensor:
        """The real part of a complex tensor, as a view; a real tensor itself. Assigning copies into it."""
        return f.real(self) if self.raw.dtype.kind == "c" else self

    @real.setter
    def real(self, value: Tensor) -> None:
        self.real.copy_(value)

    @property
    def imag(self) -> Tensor:
        """The imaginary part of a complex tensor, as a view; ArgumentError if it is real. Assigning copies
        into it."""
        if self.raw.dtype.kind != "c":
            raise ArgumentError("imag is not implemented for tensors with non-complex dtypes.")
        return f.imag(self)

    @imag.setter
    def imag(self, value: Tensor) -> None:
        self.imag.copy_(value)

    def share_memory_(self) -> Tensor:
        """Move the data of this CPU tensor to memory that processes forked from now on share; return it.

        Views made before keep the old memory. What is pickled, for a spawned process, is copied.
        """
        raw = self.raw
        if isinstance(raw, np.ndarray) and raw.nbytes and not self.is_shared():
            order = sorted(range(raw.ndim), key=lambda axis: -raw.strides[axis])
            ordered = raw.transpose(order)
            block = np.ndarray(ordered.shape, raw.dtype, mmap.mmap(-1, raw.nbytes))
            block[...] = ordered
            self.raw = block.transpose(np.argsort(order))
            self._expose()
        return self

    def is_shared(self) -> bool:
        """Whether forked processes share the data: after ``share_memory_``, and always on a GPU."""
        return is_shared(self.raw)

    def pin_memory(self, device: DeviceLike = None) -> Tensor:
        """Return the tensor itself: only the CUDA backend's own transfer buffers are in pinned memory."""
        return self

    def is_pinned(self, device: DeviceLike = None) -> bool:
        """Always False (see ``pin_memory``)."""
        return False


def detached(x: Tensor) -> Tensor:
    """Return an alias of ``x`` without history, with the same version counter."""
    if x.raw.__class__ is EXTENSIONS.array_stand_in:
        with no_grad():
            return f.alias(x)
    t: Tensor = Value.make(x.raw, x._backend)
    counter = x._version_counter
    if counter is None:
        counter = x._version_counter = [0]
    t._version_counter = counter
    return t


def _new(
    x: Tensor,
    size: tuple[SizeLike, ...],
    value: Number | None,
    dtype: DTypeLike | None,
    device: DeviceLike,
    requires_grad: bool,
) -> Tensor:
    """Create a tensor of one value (None: uninitialised), by default of ``x``'s dtype and device."""
    from tenon.tensors.creation.create import full
    from tenon.tensors.methods.movement import sizes

    kind = dtypes.as_dtype(dtype or x.dtype)
    return beside(x, full(sizes(size), value, kind, device or x.device, requires_grad))


def _on_device(x: Tensor, device: Device) -> Tensor:
    """Return ``x`` on ``device``, copied only if it is on another one."""
    own = x.device
    if own.type == device.type and (device.index is None or device.index == (own.index or 0)):
        return x
    return f.to_device(x, device=device)


def parse_to(args: Arguments, kwargs: Attrs) -> tuple[Device | None, dtypes.dtype | None, bool]:
    """Parse the arguments of ``to`` into ``(device, dtype, copy)``.

    They are ``to(device, dtype)``, ``to(dtype)`` and ``to(tensor)``, each followed by ``non_blocking``
    and ``copy``, which have to be booleans.
    """
    kwargs = dict(kwargs)
    device, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
    copy = flag("to", "copy", kwargs.pop("copy", False))
    need_flags("to", non_blocking=kwargs.pop("non_blocking", False))
    kwargs.pop("memory_format", None)
    other = kwargs.pop("other", None)
    if kwargs:
        raise TypeError(f"to() received an unexpected keyword argument {next(iter(kwargs))!r}")
    if args:
        first, *flags = args
        complete = True
        if isinstance(first, Value):
            other = first
        elif _is_dtype(first):
            dtype = first
        elif first is None or (isinstance(first, (Device, str, int)) and not isinstance(first, bool)):
            device = first
            complete = not flags or flags[0] is None or _is_dtype(flags[0])
            if flags and complete:
                dtype = flags.pop(0)
        else:
            raise TypeError(
                f"to() received an invalid argument {first!r}; expected a device, a dtype or a tensor."
            )
        if not complete or len(flags) > 2 or not all(isinstance(each, bool) for each in flags):
            raise TypeError(
                f"to() received an invalid combination of arguments {args!r}; expected to(device, dtype), "
                "to(dtype) or to(tensor), each with non_blocking and copy (booleans) after it or by name."
            )
        copy = flags[1] if len(flags) == 2 else copy
    if other is not None:
        device, dtype = other.device, other.dtype
    elif dtype is not None and not isinstance(dtype, dtypes.dtype):
        dtype = dtypes.as_dtype(dtype)
    if device is not None:
        device = device if isinstance(device, Device) else Device(device)
        backend_for(device)
    return device, dtype, copy


def _is_dtype(value: object) -> bool:
    return isinstance(value, (dtypes.dtype, np.dtype)) or value is float or value is int or value is bool


def _cast_method(name: str, target: dtypes.dtype) -> Callable[..., Tensor]:
    def method(self: Tensor, memory_format: memory_formats.memory_format | None = None) -> Tensor:
        if memory_format is not None:
            return self.to(target, memory_format=memory_format)
        return self if self.raw.dtype == target.numpy else f.cast(self, dtype=target.numpy)

    method.__name__ = name
    method.__doc__ = f"Return this tensor converted to ``{target}``; the tensor itself if that is its dtype."
    return method


for _name, _target in {
    "float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16", "long": "int64",
    "int": "int32",
    "short": "int16", "char": "int8", "byte": "uint8", "bool": "bool", "cfloat": "complex64",
    "cdouble": "complex128",
}.items():  # fmt: skip
    setattr(Convert, _name, _cast_method(_name, dtypes.BY_NAME[_target]))
