"""Create random tensors: ``rand``, ``randn``, ``randint``, ``randperm`` and ``normal``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tenon import dtypes, random
from tenon.compat.node_names import titled
from tenon.compat.rerouting import register
from tenon.device import as_device
from tenon.engine.grad_mode import MODE
from tenon.engine.operands import wrong_type
from tenon.engine.value import Value
from tenon.engine.watchers import WATCHERS, watched_creation
from tenon.errors import ArgumentError, ShapeError
from tenon.kernels.backend import backend_for
from tenon.kernels.order import memory_order
from tenon.kernels.shapes import broadcast_shapes
from tenon.kernels.whole_arrays import beside
from tenon.random.draws import Draw, draw_of
from tenon.tensors.creation.create import full as _full
from tenon.tensors.creation.create import wrap
from tenon.tensors.creation.factories import empty_like, kind_of, shape_of, write_out, written
from tenon.tensors.layout import check_layout, with_layout
from tenon.tensors.memory_formats import axes_of, preserve_format
from tenon.tensors.methods.movement import sizes

if TYPE_CHECKING:
    from tenon.device import DeviceLike
    from tenon.dtypes import DTypeLike
    from tenon.random.generator import Generator
    from tenon.tensors.memory_formats import memory_format
    from tenon.tensors.tensor import Tensor
    from tenon.tensors.types import SizeLike


def _drawn(
    draw: partial[np.ndarray] | Draw,
    shape: tuple[int, ...],
    kind: dtypes.dtype,
    device: DeviceLike,
    requires_grad: bool,
    name: str = "",
) -> Tensor:
    """Create a tensor of the array that ``draw()`` returns; ``name`` is recorded in profiles if given."""
    if name and WATCHERS.around_creation is not None:
        return WATCHERS.around_creation(name, _drawn, (draw, shape, kind, device, requires_grad), {})
    if shape and min(shape) < 0:
        raise ShapeError(f"Trying to create tensor with negative dimension {min(shape)}: {list(shape)}")
    target = as_device(device)
    if target.type == "meta":
        return _full(shape, None, kind, target, requires_grad)
    if WATCHERS.recorder is not None:
        described = draw if isinstance(draw, Draw) else draw_of(draw, shape, kind.numpy)
        result: Tensor = WATCHERS.recorder.host_draw(described)
        return result.requires_grad_() if requires_grad else result
    backend = backend_for(target)  # as ``wrap`` does, which takes 0.6 us more to look up the device again
    result = Value.make(backend.from_host(draw(), target), backend)
    return result.requires_grad_() if requires_grad else result


def rand(
    *size: SizeLike,
    generator: Generator | None = None,
    dtype: DTypeLike | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    out: Tensor | None = None,
    **rest: object,
) -> Tensor:
    """Return a tensor of uniform numbers in [0, 1), PyTorch's for the same seed (torch.rand).

    Its shape is one sequence or several sizes. ``generator`` is by default the process's.
    """
    shape, kind = shape_of(size, rest.pop("size", None) if rest else None), kind_of(dtype, out)
    if rest:
        check_layout("rand", rest)
    draw = partial(random.uniform, generator, shape, kind.numpy.type)
    result = _drawn(draw, shape, kind, device, requires_grad, "rand")
    return result if out is None else written(out, result, dtype)


def randn(
    *size: SizeLike,
    generator: Generator | None = None,
    dtype: DTypeLike | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    out: Tensor | None = None,
    **rest: object,
) -> Tensor:
    """Return a tensor of standard normal numbers, PyTorch's for the same seed, with the parameters of
    ``rand`` (torch.randn)."""
    shape, kind = shape_of(size, rest.pop("size", None) if rest else None), kind_of(dtype, out)
    if rest:
        check_layout("randn", rest)
    draw = partial(random.normal, generator, shape, kind.numpy.type)
    result = _drawn(draw, shape, kind, device, requires_grad, "randn")
    return result if out is None else written(out, result, dtype)


@with_layout
def randint(
    # ``low`` is an integer or 0-d tensor. Without it ``high`` and ``size`` move one to the left.
    low: Any = None, high: Any = None, size: SizeLike | None = None, *, generator: Generator | None = None,
    dtype: DTypeLike | None = None, device: DeviceLike = None, requires_grad: bool = False,
    out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Return a tensor of shape ``size`` of integers in [low, high), PyTorch's for the same seed.

    ``randint(high, size)`` draws from [0, high).
    """
    if size is None:
        low, high, size = 0, low, high
    if high is None or isinstance(high, (tuple, list)):
        low, high, size = 0, low, high if size is None else size
    if high is None:
        raise TypeError('randint() missing 1 required positional arguments: "high"')
    low = 0 if low is None else low
    for name, value in (("low", low), ("high", high)):
        if isinstance(value, (bool, float, np.floating)):
            raise wrong_type("randint", name, 0, value, "int")
    kind = dtypes.int64 if dtype is None else dtypes.as_dtype(dtype)
    shape = sizes((size,))
    return written(
        out,
        _drawn(
            partial(random.randint, generator, low, high, shape, kind.numpy),
            shape,
            kind,
            device,
            requires_grad,
        ),
    )


@with_layout
def randperm(
    n: int,
    *,
    generator: Generator | None = None,
    dtype: DTypeLike | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Return a vector with a random permutation of ``0`` to ``n - 1``, PyTorch's for the same seed."""
    if n < 0:
        raise ArgumentError(f"n must be non-negative, got {n}")
    kind = dtypes.int64 if dtype is None and out is None else kind_of(dtype, out)
    draw = partial(random.randperm, generator, n, kind.numpy)
    result = _drawn(draw, (n,), kind, device, requires_grad)
    return written(out, result, dtype)


def _like(
    function: str,
    arguments: tuple[tuple[str, float], ...],
    generator: Generator | None,
    input: Tensor,
    kind: dtypes.dtype,
    memory_format: memory_format | None,
) -> Draw:
    """Return a draw with ``input``'s shape and strides, or in ``memory_format``: numbers are drawn in memory
    order."""
    shape = tuple(input.raw.shape)
    if memory_format is None or memory_format is preserve_format:
        axes = memory_order(input.raw)
    else:
        axes = axes_of(memory_format, len(shape))
    order = None if axes is None else tuple(axes)
    return Draw(function, shape, kind.numpy, arguments, order=order, generator=generator)


def _placed_like(input: Tensor, drawn: Tensor) -> Tensor:
    """``drawn``, or its part if ``input`` is sharded: the numbers do not depend on the number of ranks."""
    if input._backend.own is input._backend:
        return drawn
    result = empty_like(input, dtype=drawn.dtype, device=drawn.device)
    return result.copy_(beside(input, drawn.detach())).requires_grad_(drawn.requires_grad)


def rand_like(
    input: Tensor,
    *,
    generator: Generator | None = None,
    dtype: DTypeLike | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    **rest: object,
) -> Tensor:
    """Return uniform numbers in [0, 1), with the shape, strides, dtype and device of ``input``."""
    kind = dtypes.as_dtype(dtype or input.dtype)
    memory_format: Any = rest.pop("memory_format", None)  # a memory_format or None
    check_layout("rand_like", rest)
    draw = _like("uniform", (), generator, input, kind, memory_format)
    drawn = _drawn(draw, tuple(input.shape), kind, device or input.device, requires_grad, "rand_like")
    return _placed_like(input, drawn)


def randn_like(
    input: Tensor,
    *,
    generator: Generator | None = None,
    dtype: DTypeLike | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    **rest: object,
) -> Tensor:
    """Return standard normal numbers, with the shape, strides, dtype and device of ``input``."""
    kind = dtypes.as_dtype(dtype or input.dtype)
    memory_format: Any = rest.pop("memory_format", None)  # a memory_format or None
    check_layout("randn_like", rest)
    draw = _like("normal", (), generator, input, kind, memory_format)
    drawn = _drawn(draw, tuple(input.shape), kind, device or input.device, requires_grad, "randn_like")
    return _placed_like(input, drawn)


@with_layout
def randint_like(
    input: Tensor,
    low: int,
    high: int | None = None,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    memory_format: memory_format | None = None,
) -> Tensor:
    """Return integers in [low, high), with the shape, strides, dtype and device of ``input``.

    ``randint_like(input, high)`` draws from [0, high).
    """
    low, high = (0, low) if high is None else (low, high)
    kind = dtypes.as_dtype(dtype or input.dtype)
    draw = _like("randint", (("low", low), ("high", high)), None, input, kind, memory_format)
    return _placed_like(input, _drawn(draw, tuple(input.shape), kind, device or input.device, requires_grad))


@watched_creation
@titled(lambda mean, std=1.0, *a, **k: f"Normal{2 * isinstance(std, Value) + isinstance(mean, Value)}")
def normal(
    mean: Tensor | float,
    std: Tensor | float = 1.0,
    size: SizeLike | None = None,
    *,
    generator: Generator | None = None,
    dtype: DTypeLike | None = None,
    device: DeviceLike = None,
    out: Tensor | None = None,
    **rest: object,
) -> Tensor:
    """Return normal numbers with these means and standard deviations (torch.normal).

    Either may be a tensor; the result has their broadcast shape. For two numbers, ``size`` is required.
    """
    requires_grad = bool(rest.pop("requires_grad", False))
    check_layout("normal", rest)
    if isinstance(mean, Value) or isinstance(std, Value):
        target = next(v.device for v in (mean, std) if isinstance(v, Value))
        shape = broadcast_shapes(*(v.raw.shape for v in (mean, std) if isinstance(v, Value)))
        result = _normal_of_tensors(mean, std, shape, target, generator)
        tracked = [v for v in (mean, std) if isinstance(v, Value) and v.requires_grad]
        if tracked and MODE.enabled:  # the gradient is zeros, as in PyTorch
            result = tracked[0].expand(result.raw.shape).clone().copy_(result)
        return result if out is None else write_out(out, result)
    if size is None:
        raise TypeError("normal(): argument 'size' is missing: two numbers define no shape; pass size=.")
    shape, kind = sizes((size,)), kind_of(dtype)
    return written(
        out,
        _drawn(
            partial(random.normal, generator, shape, kind.numpy.type, mean, std),
            shape,
            kind,
            device,
            requires_grad,
        ),
    )


def _normal_of_tensors(
    mean: Tensor | float,
    std: Tensor | float,
    shape: tuple[int, ...],
    target: DeviceLike,
    generator: Generator | None,
) -> Tensor:
    """Draw normal numbers whose means or standard deviations, or both, are tensors."""
    given = {"mean": mean, "std": std}
    tensors = {name: value.detach() for name, value in given.items() if isinstance(value, Value)}
    if WATCHERS.recorder is not None:
        numbers = tuple((name, value) for name, value in given.items() if not isinstance(value, Value))
        kind = next(iter(tensors.values())).dtype
        draw = Draw("normal", shape, kind.numpy, numbers, tuple(tensors), generator=generator)
        recorded: Tensor = WATCHERS.recorder.host_draw(draw, *tensors.values())
        return recorded
    parts = given | {name: value._backend.to_host(value.raw) for name, value in tensors.items()}
    drawn = wrap(random.normal(generator, mean=parts["mean"], std=parts["std"]), target)
    return beside(next(iter(tensors.values())), drawn)


_BARE = (rand, randint, randn, randperm)
register(
    "torch",
    {f.__name__: f for f in (normal, rand_like, randint_like, randn_like, *_BARE)},
    bare=[f.__name__ for f in _BARE],
)
