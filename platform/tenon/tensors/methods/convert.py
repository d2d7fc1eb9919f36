"""Dtype, device and copies: ``to``, ``float``, ``cpu``, ``clone``, ``detach``, ``contiguous``."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np

from tenon import dtypes
from tenon.device import Device
from tenon.engine.grad_mode import no_grad
from tenon.engine.op import table as f
from tenon.engine.value import Value
from tenon.errors import ArgumentError
from tenon.kernels.backend import backend_for
from tenon.tensors import formats
from tenon.tensors.extensions import EXTENSIONS
from tenon.tensors.layout import layout, strided, with_layout
from tenon.tensors.methods.function_forms import as_function
from tenon.tensors.methods.type_names import TYPE_NAMES, meant
from tenon.tensors.storage.untyped import address, is_shared


class Convert:
    """Other dtypes, devices and owners for the same values."""

    __slots__ = ()
    raw: Any

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """``to(dtype)``, ``to(device)``, ``to(device, dtype)`` or ``to(other)``; itself if nothing
        changes."""
        memory_format = kwargs.get("memory_format")
        device, dtype, copy = parse_to(args, kwargs)
        x: Any = self
        if device is not None:
            x = _moved(x, device)
        if dtype is not None and x.raw.dtype != dtype.numpy:
            x = f.cast(x, dtype=dtype.numpy)
        if memory_format is not None and memory_format is not formats.preserve_format:
            x = formats.in_format(x, memory_format)
        return f.clone(x) if copy and x is self else x

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The name of the tensor type, or this tensor as another dtype."""
        if dtype is None:
            place = "cuda." if self.is_cuda else ""
            return f"torch.{place}{TYPE_NAMES[dtypes.FROM_NUMPY[self.raw.dtype].name]}"
        kind, device = meant(dtype)
        return self.to(kind) if device is None else self.to(device, kind)

    def type_as(self, other: Any) -> Any:
        """This tensor in ``other``'s dtype and on its device."""
        return self.to(other)

    def cpu(self) -> Any:
        """On the CPU; itself if it is there."""
        return self.to("cpu")

    def cuda(self, device: Any = None, non_blocking: bool = False) -> Any:
        """On a CUDA device."""
        return self.to(Device("cuda") if device is None else Device(device))

    def to_dense(self, dtype: Any = None, *, masked_grad: bool | None = None) -> Any:
        """Itself, as every tensor here is dense; in ``dtype`` if that is given."""
        return self if dtype is None else self.to(dtype)

    def sparse_dim(self) -> int:
        """How many axes are sparse: none."""
        return 0

    def dense_dim(self) -> int:
        """How many axes are dense: all."""
        return int(self.raw.ndim)

    def contiguous(self, memory_format: Any = None) -> Any:
        """In C order, or in ``memory_format``; itself if it is."""
        return formats.contiguous(self, memory_format)

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Whether the elements lie in C order, or in ``memory_format``, without gaps."""
        return formats.is_contiguous(self.raw, memory_format)

    @as_function()
    def clone(self, *, memory_format: Any = None) -> Any:
        """A copy that gradients flow through."""
        return formats.clone(self, memory_format)

    @as_function()
    def detach(self) -> Any:
        """The same memory without history."""
        return detached(self)

    @as_function(out="none")
    def detach_(self) -> Any:
        """Drop this tensor's own history."""
        if self._view is not None and self._view[0]._track:  # type: ignore[attr-defined]
            raise ArgumentError(
                "Can't detach views in-place. Use detach() instead. If you are using DistributedDataParallel,"
                " zero the gradients with set_to_none=True."
            )
        x: Any = self
        x._node, x._index, x._track = None, 0, False
        return self

    @with_layout
    def new_tensor(
        self, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
    ) -> Any:
        """A new tensor of ``data`` with this one's dtype and device by default."""
        from tenon.tensors.creation.create import tensor

        x: Any = self
        return tensor(data, dtype=dtype or x.dtype, device=device or x.device, requires_grad=requires_grad)

    @with_layout
    def new_full(
        self,
        size: Any,
        fill_value: Any,
        *,
        dtype: Any = None,
        device: Any = None,
        requires_grad: bool = False,
    ) -> Any:
        """``fill_value`` in a new tensor of ``size``."""
        return _new(self, (size,), fill_value, dtype, device, requires_grad)

    @with_layout
    def new_zeros(
        self, *args: Any, size: Any = None, dtype: Any = None, device: Any = None, requires_grad: bool = False
    ) -> Any:
        """Zeros in a new tensor of ``size``."""
        return _new(self, args if size is None else (size,), 0, dtype, device, requires_grad)

    @with_layout
    def new_ones(
        self, *args: Any, size: Any = None, dtype: Any = None, device: Any = None, requires_grad: bool = False
    ) -> Any:
        """Ones in a new tensor of ``size``."""
        return _new(self, args if size is None else (size,), 1, dtype, device, requires_grad)

    @with_layout
    def new_empty(
        self, *args: Any, size: Any = None, dtype: Any = None, device: Any = None, requires_grad: bool = False
    ) -> Any:
        """A new tensor of ``size``, not initialised."""
        return _new(self, args if size is None else (size,), None, dtype, device, requires_grad)

    @as_function(out="none")
    def is_nonzero(self) -> bool:
        """Whether the only element is not zero."""
        if self.raw.size != 1:
            count = "no values" if self.raw.size == 0 else "more than one value"
            raise ArgumentError(
                f"Boolean value of Tensor with {count} is ambiguous. Use .any() or .all() (shape"
                f" {list(self.raw.shape)})."
            )
        return bool(self.item() != 0)  # type: ignore[attr-defined]

    @as_function(out="none")
    def is_floating_point(self) -> bool:
        """Whether the dtype is floating point."""
        return dtypes.FROM_NUMPY[self.raw.dtype].is_floating_point

    @as_function(out="none")
    def is_complex(self) -> bool:
        """Whether the dtype is complex."""
        return bool(self.raw.dtype.kind == "c")

    @as_function("is_neg", out="none")
    def is_conj(self) -> bool:
        """Always False: ``conj()`` computes, it marks nothing."""
        return False

    is_neg = is_conj

    @as_function("resolve_neg")
    def resolve_conj(self) -> Any:
        """Itself: no conjugation is ever pending."""
        return self

    resolve_neg = resolve_conj

    @as_function(out="none")
    def is_signed(self) -> bool:
        """Whether the dtype has negative values."""
        return bool(dtypes.FROM_NUMPY[self.raw.dtype].is_signed)

    def element_size(self) -> int:
        """Bytes of one element."""
        return int(self.raw.dtype.itemsize)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return int(self.raw.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return int(self.raw.size * self.raw.dtype.itemsize)

    @property
    def is_cuda(self) -> bool:
        """Whether it lives on a CUDA device."""
        return bool(self.device.type == "cuda")  # type: ignore[attr-defined]

    @property
    def is_cpu(self) -> bool:
        """Whether it lives on the CPU."""
        return bool(self.device.type == "cpu")  # type: ignore[attr-defined]

    @property
    def is_meta(self) -> bool:
        """Whether it has no data."""
        return bool(self.device.type == "meta")  # type: ignore[attr-defined]

    @property
    def is_sparse(self) -> bool:
        """Always False: tenon's tensors are dense."""
        return False

    @property
    def is_quantized(self) -> bool:
        """Always False: quantized weights are stages of a module, not a tensor type."""
        return False

    @property
    def layout(self) -> layout:
        """Always ``strided``."""
        return strided

    @property
    def names(self) -> tuple[None, ...]:
        """Axes have no names."""
        return (None,) * int(self.raw.ndim)

    @property
    def real(self) -> Any:
        """The real part; itself if real."""
        return f.real(self) if self.raw.dtype.kind == "c" else self

    @real.setter
    def real(self, value: Any) -> None:
        self.real.copy_(value)

    @property
    def imag(self) -> Any:
        """The imaginary part of a complex tensor."""
        if self.raw.dtype.kind != "c":
            raise ArgumentError("imag is not implemented for tensors with non-complex dtypes.")
        return f.imag(self)

    @imag.setter
    def imag(self, value: Any) -> None:
        self.imag.copy_(value)

    def get_device(self) -> int:
        """Index of the CUDA device, -1 on the CPU."""
        index = self.device.index  # type: ignore[attr-defined]
        return -1 if index is None else int(index)

    @as_function(out="none")
    def is_same_size(self, other: Any) -> bool:
        """Whether both shapes are equal."""
        return tuple(self.raw.shape) == tuple(other.raw.shape)

    def is_set_to(self, other: Any) -> bool:
        """Whether both show the same memory in the same way."""
        own, theirs = self.raw, other.raw
        return bool(
            address(own) == address(theirs) and own.shape == theirs.shape and own.strides == theirs.strides
        )

    def share_memory_(self) -> Any:
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
            self._expose()  # type: ignore[attr-defined]
        return self

    def is_shared(self) -> bool:
        """Whether forked processes share the data: after ``share_memory_``, and always on a GPU."""
        return is_shared(self.raw)

    def pin_memory(self, device: Any = None) -> Any:
        """Itself: pinned memory belongs to the CUDA backend's own staging buffers."""
        return self

    def is_pinned(self, device: Any = None) -> bool:
        """Always False (see ``pin_memory``)."""
        return False


def detached(x: Any) -> Any:
    """An alias of ``x`` without history, sharing its version counter."""
    if x.raw.__class__ is EXTENSIONS.array_stand_in:
        with no_grad():
            return f.alias(x)
    t = Value.make(x.raw, x._backend)
    counter = x._version_counter
    if counter is None:
        counter = x._version_counter = [0]
    t._version_counter = counter
    return t


def _new(x: Any, size: tuple[Any, ...], value: Any, dtype: Any, device: Any, requires_grad: bool) -> Any:
    from tenon.tensors.creation.create import full
    from tenon.tensors.methods.movement import sizes

    return full(sizes(size), value, dtype or x.dtype, device or x.device, requires_grad)


def _moved(x: Any, device: Device) -> Any:
    own = x.device
    if own.type == device.type and (device.index is None or device.index == (own.index or 0)):
        return x
    return f.to_device(x, device=device)


def parse_to(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Device | None, Any, bool]:
    """``(device, dtype, copy)`` from any of ``to``'s forms.

    They are ``to(device, dtype)``, ``to(dtype)`` and ``to(tensor)``, each followed by ``non_blocking``
    and ``copy``, which have to be booleans.
    """
    kwargs = dict(kwargs)
    device, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
    copy = bool(kwargs.pop("copy", False))
    kwargs.pop("non_blocking", None)
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
        if not complete or len(flags) > 2 or not all(isinstance(flag, bool) for flag in flags):
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


def _is_dtype(value: Any) -> bool:
    return isinstance(value, (dtypes.dtype, np.dtype)) or value is float or value is int or value is bool


def _cast_method(name: str, target: dtypes.dtype) -> Any:
    def method(self: Any, memory_format: Any = None) -> Any:
        if memory_format is not None:
            return self.to(target, memory_format=memory_format)
        return self if self.raw.dtype == target.numpy else f.cast(self, dtype=target.numpy)

    method.__name__, method.__doc__ = name, f"This tensor as ``{target}``; itself if it is."
    return method


for _name, _target in {
    "float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16", "long": "int64",
    "int": "int32",
    "short": "int16", "char": "int8", "byte": "uint8", "bool": "bool", "cfloat": "complex64",
    "cdouble": "complex128",
}.items():  # fmt: skip
    setattr(Convert, _name, _cast_method(_name, dtypes.BY_NAME[_target]))
