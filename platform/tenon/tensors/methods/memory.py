"""The storage of a tensor: ``as_strided``, ``resize_``, ``set_``, ``untyped_storage``."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, TypeVar

from tenon.compat.legacy_storages import storage_class
from tenon.compat.typed_storage import TypedStorage
from tenon.dtypes import FROM_NUMPY, scalar_name
from tenon.engine.aval import Aval
from tenon.engine.grad_mode import MODE, UNCOUNTED
from tenon.engine.op import table as f
from tenon.engine.value import Value
from tenon.engine.watchers import WATCHERS
from tenon.errors import ArgumentError, CaptureError, DeviceError, GradError, ShapeError
from tenon.kernels.whole_arrays import beside
from tenon.tensors.extensions import EXTENSIONS
from tenon.tensors.layout import check_layout
from tenon.tensors.methods.family import Family
from tenon.tensors.methods.function_forms import as_function
from tenon.tensors.methods.movement import sizes
from tenon.tensors.storage.shared_methods import Moves
from tenon.tensors.storage.untyped import UntypedStorage, address, memory_of

if TYPE_CHECKING:
    from tenon.device import DeviceLike
    from tenon.dtypes import DTypeLike
    from tenon.engine.types import Array
    from tenon.tensors.memory_formats import memory_format
    from tenon.tensors.tensor import Tensor
    from tenon.tensors.types import SizeLike

_CONTENTS = itertools.count(1)
T = TypeVar("T", bound="Tensor")


class Memory(Family):
    """Methods that view a storage's memory with other shapes and strides.

    Storages never grow: a tensor that is resized beyond its storage gets new memory, and tensors that shared
    the old one keep it.
    """

    __slots__ = ()

    def data_ptr(self) -> int:
        """Return the memory address of the first element."""
        return address(self.raw)

    const_data_ptr = data_ptr

    @property
    def _cdata(self) -> int:
        """A number that identifies the contents: unchanged by assigning ``data``, exchanged by
        ``swap_tensors``."""
        number: int = self.__dict__.setdefault("_content", next(_CONTENTS))
        return number

    def module_load(self, other: Tensor, assign: bool = False) -> Tensor:
        """Return the tensor that replaces this one in a module's ``load_state_dict``, made from ``other``.

        It is called after ``set_swap_module_params_on_conversion(True)``. Subclasses may override it; the
        result is a new tensor without history, never ``self`` or ``other``.
        """
        return other.detach() if assign else self.copy_(other).detach()

    def as_subclass(self, cls: type[T]) -> T:
        """Return a tensor of class ``cls`` with the same memory and history."""
        if not (isinstance(cls, type) and issubclass(cls, Value)):
            raise TypeError(f"as_subclass(): cls must be a subclass of Tensor, not {cls!r}.")
        result = f.alias(self)
        result.__class__ = cls
        if hasattr(cls, "__torch_dispatch__"):
            EXTENSIONS.intercept_class(cls)
        return result

    @staticmethod
    def _make_subclass(cls: type[T], data: Tensor, require_grad: bool = False) -> T:
        """Create a leaf of class ``cls`` over the memory of ``data``, for the ``__new__`` of such classes."""
        if not isinstance(data, Value):
            raise TypeError(
                f"_make_subclass(): argument 'data' (position 2) must be Tensor, not {type(data).__name__}"
            )
        if not (isinstance(cls, type) and issubclass(cls, Value)):
            raise TypeError(
                "Creating a Tensor subclass from a class that does not inherit from Tensor is not possible. "
                f"Make sure your class inherits from Tensor: {cls!r} does not."
            )
        data._expose()
        alias = data.detach()
        result = cls._of(alias.raw, alias._backend)
        result._version_counter = alias._version_counter
        if hasattr(cls, "__torch_dispatch__"):
            EXTENSIONS.intercept_class(cls)
        if require_grad:
            result.requires_grad_()
        return result

    def storage_offset(self) -> int:
        """Return the number of elements between the start of the storage and this tensor's first element."""
        whole = self._backend.own is self._backend
        return int(memory_of(self.raw)[1]) if whole and hasattr(self.raw, "strides") else 0

    def untyped_storage(self) -> UntypedStorage:
        """Return the storage that this tensor and all its aliases view, as bytes."""
        self._expose()
        return UntypedStorage.of(self.raw)

    def storage(self) -> TypedStorage:
        """Return the storage that this tensor views, as numbers of its dtype."""
        self._expose()
        return TypedStorage.of(self.raw)

    _typed_storage = storage

    def storage_type(self) -> type | None:
        """Return the class of this dtype's storages, such as ``FloatStorage``; None where PyTorch has
        none."""
        return storage_class(FROM_NUMPY[self.raw.dtype], self.device.type)

    @as_function(out="none")
    def as_strided(self, size: SizeLike, stride: SizeLike, storage_offset: int | None = None) -> Tensor:
        """Return a view of this tensor's storage: element ``i, j, ...`` is the element of the storage at
        ``storage_offset + i * stride[0] + j * stride[1] + ...``.

        Offsets count from the start of the storage; None is the offset of this tensor. ShapeError if a
        stride is negative or an element is outside the storage. CaptureError in a compiled function, whose
        compiler chooses the memory layout.
        """
        own = tuple(step // self.raw.dtype.itemsize for step in self.raw.strides)
        start = self.storage_offset()
        window = _window(
            self, sizes((size,)), sizes((stride,)), start if storage_offset is None else storage_offset
        )
        shape, steps, offset = window
        return f.as_strided(self, window=(shape, steps, offset - start), base=(tuple(self.raw.shape), own))

    @as_function(out="none")
    def as_strided_(self, size: SizeLike, stride: SizeLike, storage_offset: int | None = None) -> Tensor:
        """Turn this tensor into the view that ``as_strided`` returns, and return it."""
        from tenon.tensors.inplace import turn_into_view

        return turn_into_view(self, "as_strided", size, stride, storage_offset)

    @as_function()
    def as_strided_scatter(
        self, src: Tensor, size: SizeLike, stride: SizeLike, storage_offset: int | None = None
    ) -> Tensor:
        """Return a copy with ``src`` written to the elements that ``as_strided`` selects.

        ShapeError unless ``src`` has the shape ``size``.
        """
        result = self.clone() if 0 not in self.stride() else self.contiguous().clone()
        region = result.as_strided(size, stride, storage_offset)
        if tuple(region.raw.shape) != tuple(src.raw.shape):
            raise ShapeError(
                "expected src to have a size equal to the slice of self. src size = "
                f"{list(src.raw.shape)}, slice size = {list(region.raw.shape)}"
            )
        region.copy_(src)
        return result

    def resize_(self, *size: SizeLike, memory_format: memory_format | None = None) -> Tensor:
        """Change the shape in place, and return this tensor; the elements stay in memory order.

        The strides become those of C order, or of ``memory_format``. If the storage is too small the tensor
        gets a new one, whose further elements are not initialised; tensors that shared the old storage still
        use that. GradError if the tensor requires grad, ShapeError for negative or too large sizes.
        """
        shape = sizes(size)
        if any(s < 0 for s in shape):
            raise ShapeError(f"Trying to resize tensor to negative dimension {min(shape)}: {list(shape)}")
        if self.requires_grad and not (MODE.inference and self.is_inference()):
            raise GradError("cannot resize variables that require grad")
        if tuple(self.raw.shape) == shape and memory_format is None:
            return self
        _refuse_recording("resize_")
        count = math.prod(shape)
        if count >= 1 << 63:
            raise ShapeError(f"numel: integer multiplication overflow: sizes={list(shape)}")
        if count * self.raw.dtype.itemsize >= 1 << 63:
            raise ShapeError(f"Storage size calculation overflowed with sizes={list(shape)}")
        memory, start = memory_of(self.raw)
        if isinstance(memory, Aval):
            return _replace_array(self, memory.with_shape(shape))
        if start + count > memory.size:
            larger = self._backend.empty((count,), self.raw.dtype, self.device)
            old = memory[start:]
            larger[: old.size] = old
            memory, start = larger, 0
        result = Value.make(memory[start : start + count].reshape(shape), self._backend)
        if memory_format is not None:
            result = _in_format(result, memory_format)
        return _replace_array(self, result.raw)

    @as_function(out="none")
    def resize_as_(self, the_template: Tensor, *, memory_format: memory_format | None = None) -> Tensor:
        """Resize this tensor in place to the shape of ``the_template``, and return it; see ``resize_``.

        ``memory_format=tenon.preserve_format`` also takes its memory format.
        """
        from tenon.tensors.memory_formats import preserve_format, suggested

        if memory_format is preserve_format:
            memory_format = suggested(the_template.raw)
        return self.resize_(the_template.raw.shape, memory_format=memory_format)

    def set_(
        self,
        source: Tensor | UntypedStorage | TypedStorage | None = None,
        storage_offset: int = 0,
        size: SizeLike | None = None,
        stride: SizeLike | None = None,
    ) -> Tensor:
        """Make this tensor a view of ``source``, a tensor or a storage, and return it.

        None is an empty storage. ``source`` must have this tensor's dtype and device. A leaf that requires
        grad can be set inside ``no_grad()`` only, and still requires grad afterwards; otherwise GradError.
        """
        if self.requires_grad and (MODE.enabled or not self.is_leaf):
            raise GradError(
                "set_() of a tensor that requires grad would lose its history; detach() it first, or set a"
                " leaf inside no_grad()."
            )
        _refuse_recording("set_")
        if source is None:
            return _replace_array(self, self._backend.empty((0,), self.raw.dtype, self.device))
        _check_source(self, source)
        if isinstance(source, Value):
            source._expose()
            target: Tensor = source.detach()
        else:
            untyped = source.untyped() if isinstance(source, TypedStorage) else source
            target = Value.make(untyped.array(self.dtype), self._backend)
        if size is not None or storage_offset:
            if size is None:
                size = (target.raw.size - storage_offset,)
            steps = stride if stride is not None else _contiguous_strides(sizes((size,)))
            target = target.as_strided(size, steps, storage_offset)
        return _replace_array(self, target.raw)

    def new_empty_strided(
        self,
        size: SizeLike,
        stride: SizeLike,
        *,
        dtype: DTypeLike | None = None,
        device: DeviceLike = None,
        requires_grad: bool = False,
        **rest: object,
    ) -> Tensor:
        """Return an uninitialised tensor of shape ``size`` and strides ``stride``, in elements.

        By default it has this tensor's dtype and device.
        """
        check_layout("new_empty_strided", rest)
        from tenon.tensors.creation.factories import empty_strided

        made = empty_strided(
            size, stride, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad
        )
        return beside(self, made)


def _check_source(x: Tensor, source: Tensor | UntypedStorage | TypedStorage) -> None:
    """Raise unless ``x.set_(source)`` is possible: ``source`` has ``x``'s dtype and device."""
    dtype = FROM_NUMPY[x.raw.dtype]
    if not isinstance(source, (Value, Moves)):
        raise TypeError(
            f"set_(): argument 'source' must be a Tensor or a Storage, not {type(source).__name__}"
        )
    if isinstance(source, Value) and source.raw.dtype != x.raw.dtype:
        raise ArgumentError(
            f"Could not set tensor of type {scalar_name(FROM_NUMPY[source.raw.dtype])} to a tensor of type"
            f" {scalar_name(dtype)}"
        )
    if isinstance(source, TypedStorage) and source.dtype != dtype:
        raise ArgumentError(
            f"Expected a Storage of type {scalar_name(dtype)} or an UntypedStorage, but got type "
            f"{scalar_name(source.dtype)} for argument 1 'storage'"
        )
    if source.device != x.device:
        raise DeviceError(
            f'Attempted to set the storage of a tensor on device "{x.device}" to a storage on different'
            f' device "{source.device}". This is no longer allowed; the devices must match.'
        )


def _window(
    x: Tensor, shape: tuple[int, ...], steps: tuple[int, ...], offset: int
) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Return shape, strides and offset; ShapeError unless these elements are in the storage of ``x``."""
    if len(shape) != len(steps):
        raise ShapeError(f"mismatch in length of strides and shape: {list(steps)} and {list(shape)}")
    if any(s < 0 for s in shape):
        raise ShapeError(f"as_strided: sizes must not be negative, got {list(shape)}")
    if any(s < 0 for s in steps):
        raise ShapeError(
            f"as_strided: Negative strides are not supported at the moment, got strides: {list(steps)}"
        )
    if offset < 0:
        raise ShapeError(f"Tensor: invalid storage offset {offset}")
    _refuse_recording("as_strided")
    size = memory_of(x.raw)[0].size
    last = offset + sum((s - 1) * step for s, step in zip(shape, steps, strict=True)) + 1
    if 0 not in shape and last > size:
        raise ShapeError(
            f"setStorage: sizes {list(shape)}, strides {list(steps)}, storage offset {offset}, requiring a "
            f"storage size of {last} elements are out of bounds for storage of {size}"
        )
    return shape, steps, offset


def _refuse_recording(name: str) -> None:
    """Raise CaptureError if a graph is being recorded: ``name`` depends on the memory layout."""
    if WATCHERS.recorder is not None:
        WATCHERS.recorder.refuse(
            CaptureError(
                f"{name} depends on the memory layout, which the compiler chooses. Call it outside"
                " the compiled function, or use views, gather or index tensors inside."
            )
        )


def _contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _in_format(x: Tensor, target: memory_format) -> Tensor:
    """View the memory of ``x`` with the strides of the format ``target``."""
    from tenon.tensors.memory_formats import contiguous

    order = contiguous(Value.make(x.raw.reshape(x.raw.shape), x._backend).clone(), target).stride()
    return x.as_strided(tuple(x.raw.shape), order)


def _replace_array(x: Tensor, raw: Array) -> Tensor:
    """Replace the array of ``x`` by ``raw``, and increment its version, which invalidates saved values."""
    x._settle()
    counter = x._counter()
    if counter is not UNCOUNTED:
        counter[0] += 1
    x.raw = raw
    x._view = None
    x._expose()
    return x


def _false_property(name: str) -> property:
    def method(self: Tensor) -> bool:
        return False

    method.__name__ = method.__qualname__ = name
    method.__doc__ = "Always False: tenon has no such tensors."
    return property(method)


for _kind in ("ipu", "maia", "mkldnn", "mps", "mtia", "nested", "sparse_csr", "vulkan", "xla", "xpu"):
    setattr(Memory, f"is_{_kind}", _false_property(f"is_{_kind}"))
