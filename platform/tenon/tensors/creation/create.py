"""Create tensors from Python and NumPy data: ``tensor``, ``as_tensor``, ``from_numpy``; pickle them.

Factories by shape are in ``factories.py``, filling with random numbers is in ``random_filling.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tenon import dtypes, random
from tenon.compat.typed_storage import TypedStorage
from tenon.device import as_device
from tenon.dtypes import FROM_NUMPY, dtype, scalar_name
from tenon.engine.accumulate import CHANGED_EAGERLY, DESTINATION
from tenon.engine.aval import Aval
from tenon.engine.value import Value
from tenon.engine.watchers import WATCHERS, watched_creation
from tenon.errors import ArgumentError, DTypeError, GradError, ShapeError
from tenon.kernels.backend import backend_for, backend_named
from tenon.kernels.promotion import fitted
from tenon.kernels.whole_arrays import beside
from tenon.tensors.creation.python_data import to_array
from tenon.tensors.size import Size
from tenon.tensors.storage.sources import own_extent
from tenon.tensors.storage.untyped import UntypedStorage

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from tenon.device import DeviceLike
    from tenon.dtypes import DTypeLike
    from tenon.engine.types import Arguments, Attrs
    from tenon.tensors.tensor import Tensor
    from tenon.tensors.types import Number


T = TypeVar("T", bound="Tensor")


def wrap(array: np.ndarray, device: DeviceLike = None, requires_grad: bool = False) -> Tensor:
    """Return a tensor of a host array on ``device``, by default the default device; not copied on the CPU."""
    target = as_device(device)
    backend = backend_for(target)
    t: Tensor = Value.make(backend.from_host(array, target), backend)
    if WATCHERS.recorder is not None:
        WATCHERS.recorder.made(t.raw)
    return _leaf(t) if requires_grad else t


def _leaf(t: Tensor) -> Tensor:
    """Make the new tensor ``t`` require grad; GradError for integers and booleans."""
    if t.raw.dtype.kind in "iub":
        raise GradError(
            f"Only Tensors of floating point and complex dtype can require gradients, not {t.dtype}. Give a"
            " floating dtype=."
        )
    return t.requires_grad_()


def from_numpy(ndarray: np.ndarray) -> Tensor:
    """Return a CPU tensor that shares the memory of ``ndarray`` (torch.from_numpy).

    Its storage is the memory from the first to the last element of ``ndarray``, which is all that
    ``as_strided`` reaches and ``save`` writes, also where ``ndarray`` is a view of a larger array.

    Raises TypeError for anything but an array, DTypeError for dtypes that tensors cannot have, ArgumentError
    for another byte order, ShapeError for negative strides and for strides that are no multiples of the
    element size.
    """
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(ndarray).__name__})")
    if not ndarray.dtype.isnative:
        raise ArgumentError(
            f"given numpy array has byte order different from the native byte order ({ndarray.dtype})."
            " Convert it with array.astype(array.dtype.newbyteorder('='))."
        )
    dtypes.from_numpy_dtype(ndarray.dtype)
    if any(s < 0 for s in ndarray.strides):
        raise ShapeError(
            "At least one stride in the given numpy array is negative, and tensors with negative strides are"
            " not currently supported. (You can probably work around this by making a copy of your array with"
            " array.copy().)"
        )
    if any(s % ndarray.itemsize for s in ndarray.strides):
        raise ShapeError(
            "given numpy array strides not a multiple of the element byte size. Copy the numpy array to"
            f" reallocate the memory. (It is of {ndarray.dtype} with strides {ndarray.strides}, such as a"
            " field of a structured array.)"
        )
    result: Tensor = Value.make(own_extent(ndarray), backend_named("cpu"))
    result._expose()
    return result


random.state_conversion(from_numpy)  # Generator.get_state() returns tensors


@watched_creation
def tensor(
    data: object,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Return a tensor with a copy of ``data``: numbers, nested sequences, arrays or tensors (torch.tensor).

    Without ``dtype``, Python floats have the default dtype, integers int64. ``requires_grad`` makes it a leaf
    that accumulates gradients. ``pin_memory`` has no effect.
    """
    if isinstance(data, Value):
        x: Any = data  # a Tensor, whose module imports this one
        target = device if device is not None else x.device
        t: Tensor = x.detach().to(target, dtype or x.dtype, copy=True)
        return t.requires_grad_() if requires_grad else t
    if isinstance(data, (TypedStorage, UntypedStorage)):  # whose bytes are read as numbers of the dtype
        own = data.dtype if isinstance(data, TypedStorage) else dtypes.int64
        kind = own if dtype is None else dtypes.as_dtype(dtype)
        if isinstance(data, TypedStorage) and data.dtype != kind:
            raise DTypeError(
                f"Expected a Storage of type {scalar_name(kind)} or an UntypedStorage, but got "
                f"{scalar_name(data.dtype)}"
            )
        return wrap(data.untyped().array(kind).copy(), device, requires_grad)
    return wrap(to_array(data, dtype), device, requires_grad)


def as_tensor(data: object, dtype: DTypeLike | None = None, device: DeviceLike = None) -> Tensor:
    """Return ``data`` as a tensor (torch.as_tensor): itself if it is one of this dtype and device, a view of
    its memory if it is such a NumPy array, else a copy."""
    if isinstance(data, Value):
        x: Any = data  # a Tensor
        return x.to(device, dtype) if device is not None or dtype is not None else x
    if isinstance(data, np.ndarray) and data.flags.writeable and all(s >= 0 for s in data.strides):
        t = from_numpy(data)
        return t.to(as_device(device), dtype)
    return tensor(data, dtype=dtype, device=device)


def full(
    shape: Iterable[int], value: Number | None, kind: dtype, device: DeviceLike, requires_grad: bool = False
) -> Tensor:
    """Return a tensor whose elements are all ``value``, or uninitialised if that is None."""
    shape = tuple(int(s) for s in shape)
    if any(s < 0 for s in shape):
        raise ShapeError(f"Trying to create tensor with negative dimension {min(shape)}: {list(shape)}")
    target = as_device(device)
    backend = backend_for(target)
    try:
        raw = backend.empty(shape, kind.numpy, target)
    except ValueError as error:
        raise ShapeError(
            f"Storage size calculation overflowed with sizes={list(shape)} of {kind}: that is 2**63 bytes or"
            " more."
        ) from error
    if value is None and WATCHERS.recorder is not None:
        value = 0  # so that two recordings of uninitialised memory agree
    if value is not None and not isinstance(raw, Aval):
        raw[...] = fitted(value, kind.numpy)
    t: Tensor = Value.make(raw, backend)
    if WATCHERS.recorder is not None:
        WATCHERS.recorder.made(raw)
    return _leaf(t) if requires_grad else t


def legacy_tensor(cls: type[T], args: Arguments, kwargs: Attrs, dtype: dtype | None = None) -> T:
    """Create a tensor by PyTorch's legacy constructor: ``Tensor()``, ``Tensor(2, 3)``, ``Tensor(data)``."""
    kind = dtype or dtypes.get_default_dtype()
    device = kwargs.pop("device", None)
    if "size" in kwargs and not args:
        args = (Size(kwargs.pop("size")),)
    if kwargs:
        raise TypeError(
            f"Tensor() got an unexpected keyword argument {next(iter(kwargs))!r}; use tenon.tensor(...)."
        )
    if device is not None and args and isinstance(args[0], Value):
        raise ArgumentError(
            "Legacy tensor constructor of the form torch.Tensor(tensor, device=device) is not supported. Use"
            " torch.as_tensor(tensor, device=device)."
        )
    if not args:
        result = full((0,), None, kind, device)
    elif len(args) == 1 and isinstance(args[0], Size):
        result = full(tuple(args[0]), None, kind, device)
    elif all(isinstance(a, (int, np.integer)) and not isinstance(a, bool) for a in args):
        result = full(args, None, kind, device)
    elif len(args) == 1 and isinstance(args[0], Value):
        own = FROM_NUMPY[args[0].raw.dtype]
        if dtype is not None and own != dtype:
            raise TypeError(f"a tensor type of {dtype} got a tensor of {own}; use tensor.to({dtype}).")
        result = args[0].detach()  # a Tensor
    elif len(args) == 1 and isinstance(args[0], (TypedStorage, UntypedStorage)):
        result = _over(args[0], kind)
    elif len(args) == 1 and isinstance(args[0], (str, float)):
        text = isinstance(args[0], str)
        problem = "invalid data type 'str'" if text else "data must be a sequence (got float)"
        raise TypeError(f"new(): {problem}; sizes are integers, one number is tenon.tensor({args[0]!r}).")
    elif len(args) == 1:
        result = tensor(args[0], dtype=kind, device=device)
    else:
        raise TypeError(f"Tensor() takes sizes or one sequence, got {args!r}; use tenon.tensor(...).")
    return cls._of(result.raw, result._backend)


def _over(storage: TypedStorage | UntypedStorage, kind: dtype) -> Tensor:
    """Return a vector of dtype ``kind`` over the memory of a storage."""
    if isinstance(storage, TypedStorage) and storage.dtype != kind:
        raise DTypeError(
            f"Expected a Storage of type {scalar_name(kind)} or an UntypedStorage, but got type "
            f"{scalar_name(storage.dtype)} for argument 1 'storage'"
        )
    result: Tensor = Value.make(storage.untyped().array(kind), backend_named(storage.device.type))
    result._expose()
    return result


def check_grad(owner: Tensor, value: Tensor) -> None:
    """Raise unless ``value`` may be assigned to ``owner.grad``: same shape and device, the right dtype."""
    if not isinstance(value, Value):
        raise TypeError(
            f"assigned grad expected to be a Tensor or None but got grad of type {type(value).__name__!r}"
        )
    if value is owner:
        raise GradError("can't assign Variable as its own grad")
    grad_dtype = owner.__dict__.get("_grad_dtype", FROM_NUMPY[owner.raw.dtype])
    if grad_dtype is not None and FROM_NUMPY[value.raw.dtype] != grad_dtype:
        raise DTypeError(
            f"attempting to assign a gradient with dtype '{FROM_NUMPY[value.raw.dtype]}' to a tensor with"
            f" grad_dtype '{scalar_name(grad_dtype)}' ({grad_dtype}). Convert it, or set the tensor's"
            " grad_dtype (None allows any dtype)."
        )
    own = value._backend.device_of(value.raw)
    if own != owner.device:
        raise GradError(f"assigned grad has data located on a different device: {own} and {owner.device}")
    if tuple(value.raw.shape) != tuple(owner.raw.shape):
        raise GradError(
            f"assigned grad has data of a different size: {list(value.raw.shape)} for a tensor of"
            f" {list(owner.raw.shape)}"
        )


def exchange_data(x: Tensor, value: Tensor) -> None:
    """Assign ``x.data = value``: the tensor object gets the memory of ``value``."""
    if not isinstance(value, Value):
        raise TypeError(f"Variable data has to be a tensor, but got {type(value).__name__}")
    if x._track and value.raw.dtype.kind in "iub":
        raise GradError(
            "data set to a tensor that requires gradients must be floating point or complex dtype"
        )
    if WATCHERS.recorder is not None:
        WATCHERS.recorder.exchanged(x)
    x.raw, x._backend = value.raw, value._backend
    x._view = None
    x._expose()  # ``value`` shares this memory, and counts its versions separately


#: Attributes of the tensor object that copies do not get: gradient, hooks, and other transient state.
NOT_COPIED = (
    "_grad", "_hooks", "_post_accumulate_hooks", "_node_hooks", "_node_prehooks", "_node_metadata",
    CHANGED_EAGERLY, DESTINATION, "_accumulator", "_retains", "_content", "_became",
)  # fmt: skip


def reduce(x: Tensor) -> tuple[Callable[..., object], tuple[object, ...]]:
    """Return what pickle needs to rebuild ``x``: host array, device, flags and attributes."""
    host = (
        None
        if isinstance(x.raw, Aval)
        else np.ascontiguousarray(x._backend.to_host(x.raw)).reshape(x.raw.shape)
    )
    extra = {k: v for k, v in x.__dict__.items() if k not in NOT_COPIED}
    if x._node is not None:
        raise GradError("a tensor with history cannot be pickled; detach() it first.")
    return (
        _rebuild,
        (type(x), host, str(x.device), FROM_NUMPY[x.raw.dtype], tuple(x.raw.shape), x._track, extra),
    )


def _rebuild(
    cls: type[T],
    host: np.ndarray | None,
    device: str,
    kind: dtype,
    shape: tuple[int, ...],
    track: bool,
    extra: Mapping[str, object],
) -> T:
    result = full(shape, None, kind, device) if host is None else wrap(host, device)
    t = cls._of(result.raw, result._backend)
    t._track = track
    t.__dict__.update(extra)
    return t


def from_backend_array(like: Tensor, array: ArrayLike) -> Tensor:
    """Copy a host array to a tensor on the device of ``like``."""
    return beside(like, wrap(np.asarray(array), like.device))


__all__ = ["as_tensor", "from_numpy", "full", "tensor", "wrap"]
