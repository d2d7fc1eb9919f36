"""Create tensors from other data: complex numbers from their parts, windows, buffers, DLPack."""

from __future__ import annotations

import math
import operator
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon import dtypes, ops
from tenon.compat.node_names import titled
from tenon.device import as_device
from tenon.dtypes import scalar_name
from tenon.engine.value import Value
from tenon.errors import ArgumentError, DTypeError, ExportError, ShapeError, TenonWarning
from tenon.functions.derived import refuse, write_into
from tenon.functions.windows import kaiser
from tenon.tensors import dlpack
from tenon.tensors.creation.create import as_tensor, from_numpy, wrap
from tenon.tensors.layout import with_layout
from tenon.tensors.methods.op_methods import need_tensor
from tenon.tensors.tensor import Tensor
from tenon.tensors.wrong_arguments import only_tensors

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from tenon.device import DeviceLike
    from tenon.dtypes import DTypeLike
    from tenon.tensors.types import Number

__all__ = [
    "asarray", "bartlett_window", "blackman_window", "complex", "fill", "from_dlpack", "frombuffer",
    "hamming_window",
    "hann_window", "imag", "kaiser_window", "polar", "real", "to_dlpack", "view_as_complex", "view_as_real",
]  # fmt: skip


def complex(real: Tensor, imag: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return ``real + 1j * imag`` of two float32 or two float64 tensors; DTypeError for others."""
    _check_parts(real, imag, out)
    result = ops.rectangular(real, imag)
    return write_into(out, result)


def _check_parts(x: Tensor, y: Tensor, out: Tensor | None) -> None:
    """Raise unless both parts have one floating dtype, and ``out`` the complex dtype that matches."""
    first, second = scalar_name(x.dtype), scalar_name(y.dtype)
    if any(v.raw.dtype not in (np.float16, np.float32, np.float64) for v in (x, y)):
        raise DTypeError(
            f"Expected both inputs to be Half, Float or Double tensors but got {first} and {second}"
        )
    if x.raw.dtype != y.raw.dtype:
        raise DTypeError(
            f"Expected object of scalar type {first} but got scalar type {second} for second argument"
        )
    if x.raw.dtype == np.float16:
        raise DTypeError("complex numbers of two Halfs (complex32) do not exist here. Use .float() first.")
    if out is not None and out.dtype is not x.dtype.to_complex():
        raise DTypeError(
            f"Expected object of scalar type {scalar_name(x.dtype.to_complex())} but got scalar type "
            f"{scalar_name(out.dtype)} for argument 'out'"
        )


@titled(lambda input, value: f"Fill{int(isinstance(value, Value))}")
def fill(input: Tensor, value: Tensor | Number) -> Tensor:
    """Return a tensor like ``input`` filled with ``value``, a number or a tensor of one element."""
    return input.clone().fill_(value)


@titled("Polar0")
def polar(abs: Tensor, angle: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return complex numbers of magnitude ``abs`` and angle ``angle`` in radians; see ``complex``."""
    if not isinstance(abs, Value):
        raise refuse("polar", abs)
    need_tensor("polar", "angle", angle)
    _check_parts(abs, angle, out)
    return complex(ops.mul(abs, ops.cos(angle)), ops.mul(abs, ops.sin(angle)), out=out)


def real(input: Tensor) -> Tensor:
    """Return the real part of a complex tensor, as a view; a real tensor itself."""
    only_tensors(input)
    return input.real


def imag(input: Tensor) -> Tensor:
    """Return the imaginary part of a complex tensor, as a view; ArgumentError for a real one."""
    only_tensors(input)
    return input.imag


def view_as_real(input: Tensor) -> Tensor:
    """Return a view ``[*, 2]`` of a complex tensor ``[*]``: its real and imaginary parts."""
    if input.raw.dtype.kind != "c":
        raise DTypeError(f"view_as_real is only supported for complex tensors, got {input.dtype}")
    return ops.view_as_real(input)


def view_as_complex(input: Tensor) -> Tensor:
    """Return a complex view ``[*]`` of a tensor ``[*, 2]`` of real and imaginary parts."""
    if input.raw.dtype not in (np.float32, np.float64):
        raise DTypeError(
            "view_as_complex is only supported for floating point tensors, but got a tensor of scalar type: "
            f"{scalar_name(input.dtype)}"
        )
    steps = input.stride()
    wrong = ""
    if not steps:
        wrong = "Input tensor must have one or more dimensions"
    elif input.raw.shape[-1] != 2:
        wrong = "Tensor must have a last dimension of size 2"
    elif steps[-1] != 1:
        wrong = "Tensor must have a last dimension with stride 1"
    elif any(step % 2 for step in steps[:-1]):
        wrong = "Tensor must have a stride divisible by 2 for all but last dimension"
    if wrong:
        raise ShapeError(f"{wrong} (shape {list(input.raw.shape)}, strides {list(steps)})")
    return ops.view_as_complex(input)


#: Number of cosines in a run that ``_cosines`` computes directly.
_RUN = 512


def _cosines_directly(length: int, step: float) -> np.ndarray:
    return np.cos(np.arange(length) * step)


def _cosines(length: int, step: float) -> np.ndarray:
    """Compute ``cos(n * step)`` for ``n < length`` as ``cos(a + b)``, where ``a`` is a multiple of a run: in
    a sixth of NumPy's time, to 3e-16."""
    near, far = np.arange(_RUN) * step, np.arange(-(-length // _RUN))[:, None] * (_RUN * step)
    result = np.cos(far) * np.cos(near)
    result -= np.sin(far) * np.sin(near)
    return result.reshape(-1)[:length]


def _window(
    length: int,
    periodic: bool,
    weights: tuple[float, ...],
    dtype: DTypeLike | None,
    device: DeviceLike,
    requires_grad: bool,
) -> Tensor:
    kind = dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)
    _check_window("this", length, kind)
    step = 2 * math.pi / max(length if periodic else length - 1, 1)
    cosines = _cosines if length > 4 * _RUN and kind.itemsize < 8 else _cosines_directly
    array = sum(w * (cosines(length, n * step) if n else 1.0) for n, w in enumerate(weights))
    array = array if length > 1 else np.ones(length)
    return wrap(np.asarray(array).astype(kind.numpy), device, requires_grad)


def _check_window(name: str, length: int, kind: dtypes.dtype) -> None:
    if operator.index(length) < 0:
        raise ShapeError(f"{name} window requires non-negative window_length, got window_length={length}")
    if not kind.is_floating_point:
        raise DTypeError(f"{name} window expects floating point dtypes, got: {kind}")


@with_layout
def hann_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return the Hann window of ``window_length`` points: one period of a raised cosine."""
    return _window(window_length, periodic, (0.5, -0.5), dtype, device, requires_grad)


@with_layout
def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return the Hamming window ``alpha - beta * cos`` of ``window_length`` points."""
    return _window(window_length, periodic, (alpha, -beta), dtype, device, requires_grad)


@with_layout
def blackman_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return the Blackman window of ``window_length`` points; symmetric unless ``periodic``."""
    return _window(window_length, periodic, (0.42, -0.5, 0.08), dtype, device, requires_grad)


@with_layout
def bartlett_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return the Bartlett window of ``window_length`` points, a triangle; symmetric unless ``periodic``."""
    kind = dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)
    span = window_length if periodic else window_length - 1
    _check_window("bartlett", window_length, kind)
    array = 1 - np.abs(2 * np.arange(window_length) / max(span, 1) - 1) if window_length != 1 else np.ones(1)
    return wrap(array.astype(kind.numpy), device, requires_grad)


@with_layout
def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return the Kaiser window of ``window_length`` points: an older name of ``signal.windows.kaiser``."""
    kind = dtypes.get_default_dtype() if dtype is None else dtypes.as_dtype(dtype)
    _check_window("kaiser", window_length, kind)
    return kaiser(
        window_length, beta=beta, sym=not periodic, dtype=dtype, device=device, requires_grad=requires_grad
    )


def asarray(
    obj: object,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike = None,
    copy: bool | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """Return ``obj`` as a tensor (torch.asarray) that shares its memory if possible.

    With ``copy=True`` it never does; with ``copy=False`` ArgumentError is raised if it cannot. Tensors,
    arrays, DLPack capsules and buffers have memory to share; a buffer is read as ``dtype``.
    """
    source = _over_memory(obj, dtype, copy)
    if source is None:
        if copy is False:
            raise ArgumentError("can't alias arbitrary sequence into a tensor. Omit copy=False.")
        result = as_tensor(obj, dtype, device)
    else:
        target_device = source.device if device is None and source is obj else as_device(device)
        device_differs = (
            target_device.type != source.device.type or None is not target_device.index != source.device.index
        )
        target_dtype = source.dtype if dtype is None else dtypes.as_dtype(dtype)
        if copy is False and device_differs:
            raise ArgumentError(
                f"can't alias tensor from device '{source.device}' to '{target_device}'. Omit copy=False."
            )
        if copy is False and source.dtype is not target_dtype:
            first, second = scalar_name(source.dtype), scalar_name(target_dtype)
            raise ArgumentError(
                f"can't alias tensor with dtype '{first}' into dtype '{second}'. Omit copy=False."
            )
        result = source.to(device=target_device, dtype=dtype, copy=bool(copy))
    if requires_grad is False:
        result = result.detach()
    return result.requires_grad_() if requires_grad else result


# ``obj`` is of any type that ``asarray`` takes; only ``memoryview`` can tell whether it is a buffer.
def _over_memory(obj: Any, dtype: DTypeLike | None, copy: bool | None) -> Tensor | None:
    """Return a tensor over the memory of ``obj``; None if it has none, or read-only memory."""
    if isinstance(obj, Tensor):
        return obj
    if type(obj).__name__ == "PyCapsule":
        return from_dlpack(obj)
    if isinstance(obj, np.ndarray):
        return from_numpy(obj) if obj.flags.writeable and min(obj.strides, default=0) >= 0 else None
    if dtype is None or isinstance(obj, np.generic):
        return None
    try:
        readonly = memoryview(obj).readonly
    except TypeError:
        return None
    return None if readonly and copy is False else frombuffer(obj, dtype=dtype)


def frombuffer(
    buffer: Buffer, *, dtype: DTypeLike, count: int = -1, offset: int = 0, requires_grad: bool = False
) -> Tensor:
    """Return a vector over the memory of ``buffer``, or of a copy if it is read-only (torch.frombuffer).

    ``count`` is the number of elements (-1: all), ``offset`` the number of bytes before them. ArgumentError
    if the buffer is too short or its length is not a multiple of the element size.
    """
    kind = dtypes.as_dtype(dtype)
    try:
        room = memoryview(buffer).nbytes
    except TypeError as error:
        raise ArgumentError(
            f"object does not implement Python buffer protocol: a {type(buffer).__name__} exports no memory."
        ) from error
    _check_part(room, kind.itemsize, count, offset)
    array = np.frombuffer(memoryview(buffer), np.uint8)[offset:]
    if not array.flags.writeable:
        warnings.warn(
            "The given buffer is not writable. The tensor has a copy of it; pass a bytearray to share its"
            " memory.",
            TenonWarning,
            stacklevel=2,
        )
        array = array.copy()
    array = array[: count * kind.itemsize] if count > 0 else array
    result = from_numpy(array.view(kind.numpy))
    return result.requires_grad_() if requires_grad else result


def _check_part(room: int, size: int, count: int, offset: int) -> None:
    """Raise unless ``count`` elements of ``size`` bytes at ``offset`` fit into a buffer of ``room`` bytes."""
    if not room or not count:
        raise ArgumentError(f"both buffer length ({room}) and count ({count}) must not be 0")
    if not 0 <= offset < room:
        raise ArgumentError(
            f"offset ({offset} bytes) must be non-negative and no greater than buffer length ({room} bytes) "
            "minus 1"
        )
    if count < 0 and (room - offset) % size:
        raise ArgumentError(
            f"buffer length ({room - offset} bytes) after offset ({offset} bytes) must be a multiple of "
            f"element size ({size})"
        )
    if count > 0 and offset + count * size > room:
        raise ArgumentError(
            f"requested buffer length ({count} * {size} bytes) after offset ({offset} bytes) must not be "
            f"greater than actual buffer length ({room} bytes)"
        )


def to_dlpack(tensor: Tensor) -> object:
    """Return the DLPack capsule of a tensor, which can be consumed once (torch.utils.dlpack.to_dlpack)."""
    return tensor.__dlpack__()


def from_dlpack(ext_tensor: Any) -> Tensor:  # of any library
    """Return a tensor over the memory of an object with ``__dlpack__``, or of a DLPack capsule.

    TypeError for any other object.
    """
    if isinstance(ext_tensor, Tensor):
        if ext_tensor.requires_grad:
            raise ExportError("Can't export tensors that require gradient, use tensor.detach()")
        return ext_tensor.detach()
    if type(ext_tensor).__name__ == "PyCapsule":
        return from_numpy(dlpack.array_of(ext_tensor))
    if not hasattr(ext_tensor, "__dlpack__"):
        raise ArgumentError(
            f"from_dlpack received {type(ext_tensor).__name__}, which is not a DLPack capsule and has no"
            " __dlpack__."
        )
    try:
        return from_numpy(np.from_dlpack(ext_tensor))
    except (BufferError, RuntimeError):  # NumPy does not have bfloat16
        if ext_tensor.__dlpack_device__()[0] != 1:
            raise
        return from_numpy(dlpack.array_of(ext_tensor.__dlpack__()))
