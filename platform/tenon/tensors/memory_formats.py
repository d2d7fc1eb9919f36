"""Memory formats: ``torch.contiguous_format``, ``channels_last`` and the others.

A format is an order of strides, independent of shape and values. ``channels_last`` stores ``[N, C, H, W]`` as
``[N, H, W, C]``, ``channels_last_3d`` the same with one more axis. ``kernels/order.py`` propagates formats
through elementwise ops, ``kernels/following.py`` through others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tenon.engine.op import table as f
from tenon.errors import ArgumentError, ShapeError
from tenon.kernels.following import LAST, as_channels_last, channels_lie_last

if TYPE_CHECKING:
    from tenon.engine.types import Array
    from tenon.tensors.tensor import Tensor


class memory_format:
    """A memory format (torch.memory_format); compare with ``is`` or ``==``."""

    __slots__ = ("_axes", "_name")

    def __init__(self, name: str, axes: tuple[int, ...] | None = None) -> None:
        self._name = name
        self._axes = axes

    def __repr__(self) -> str:
        return f"torch.{self._name}"

    def __reduce__(self) -> str:
        return self._name


contiguous_format = memory_format("contiguous_format")
preserve_format = memory_format("preserve_format")
channels_last = memory_format("channels_last", (0, 2, 3, 1))
channels_last_3d = memory_format("channels_last_3d", (0, 2, 3, 4, 1))


def axes_of(target: memory_format, rank: int) -> tuple[int, ...] | None:
    """Return the axes in the memory order of the format ``target``; None for C order."""
    if not isinstance(target, memory_format):
        raise TypeError(f"memory_format must be a torch.memory_format, not {type(target).__name__}")
    axes = target._axes
    if axes is not None and len(axes) != rank:
        raise ShapeError(f"required rank {len(axes)} tensor to use {target} format, but got rank {rank}.")
    return axes


def _permuted(x: Tensor, axes: tuple[int, ...], op: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply ``op`` to ``x`` permuted to ``axes``, and undo the permutation on the result."""
    back = tuple(sorted(range(len(axes)), key=axes.__getitem__))
    return f.permute(op(f.permute(x, axes=axes)), axes=back)


def is_contiguous(raw: Array, target: memory_format | None = None) -> bool:
    """Whether the array is dense in the format ``target`` (None: in C order)."""
    flags = getattr(raw, "flags", None)
    if target is None or target is contiguous_format or flags is None:
        return True if flags is None else bool(flags.c_contiguous)
    if target is preserve_format:
        raise ArgumentError("preserve memory format is unsupported by the contiguous operator")
    if isinstance(target, memory_format) and target._axes is not None and len(target._axes) != raw.ndim:
        return False
    axes = axes_of(target, raw.ndim)
    return bool((raw if axes is None else raw.transpose(axes)).flags.c_contiguous)


def suggested(raw: Array) -> memory_format | None:
    """Return the memory format of an array; None if it is contiguous or in no format."""
    if is_contiguous(raw):
        return None
    formats = (channels_last, channels_last_3d)
    return next((f for f in formats if is_contiguous(raw, f)), None)


def contiguous(x: Tensor, target: memory_format | None = None) -> Tensor:
    """Return ``x`` in the format ``target`` (None: in C order), copied if needed."""
    axes = None if target is None else axes_of(target, x.raw.ndim)
    if is_contiguous(x.raw, target):
        return x
    return f.contiguous(x) if axes is None else _permuted(x, axes, f.contiguous)


def with_gradient_in_format(x: Tensor) -> Tensor:
    """Return ``x``, with its gradient in channels_last format if ``x`` is: for functions that split axes.

    Their rules return gradients in C order. For any other ``x`` the only cost is a check of its strides.
    """
    raw = x.raw
    if not x._track or not hasattr(raw, "strides") or not channels_lie_last(raw):
        return x
    return _permuted(x, LAST[raw.ndim], f.ordered)


def like(x: Tensor, other: Tensor) -> Tensor:
    """Return ``x`` in channels_last format if ``other`` is, else ``x`` unchanged."""
    raw = other.raw
    if not hasattr(raw, "strides") or not channels_lie_last(raw) or x.raw.ndim != raw.ndim:
        return x
    return contiguous(x, channels_last if raw.ndim == 4 else channels_last_3d)


def clone(x: Tensor, target: memory_format | None = None) -> Tensor:
    """Copy ``x`` in the format ``target``; by default its own format is preserved."""
    if target is None or target is preserve_format:
        return f.clone(x)
    axes = axes_of(target, x.raw.ndim)
    if axes is None:
        return f.clone(x) if is_contiguous(x.raw) else f.contiguous(x)
    return _permuted(x, axes, lambda y: f.clone(f.contiguous(y)))


def in_format(x: Tensor, target: memory_format) -> Tensor:
    """Return ``x`` as ``.to(memory_format=...)`` does: with the strides of ``target``, even of axes of one
    element, which ``contiguous`` ignores."""
    axes = axes_of(target, x.raw.ndim)
    if not hasattr(x.raw, "strides") or channels_lie_last(x.raw) == (axes is not None):
        return contiguous(x, target)
    if not is_contiguous(x.raw, target):
        return contiguous(x, target)
    result, xp = f.clone(x), x._backend.xp
    result.raw = xp.array(result.raw, order="C") if axes is None else as_channels_last(xp, result.raw)
    return result


def new_in_format(x: Tensor, target: memory_format | None) -> Tensor:
    """Return ``x``, which has no history, in the format ``target`` (None: unchanged)."""
    if target is None or target is preserve_format or is_contiguous(x.raw, target):
        return x
    result = contiguous(x.detach(), target).detach()
    return result.requires_grad_(x.requires_grad)
