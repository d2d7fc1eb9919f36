"""While a function is captured with free sizes, its tensors' sizes are ``TracedSize``s.

``traced_sizes`` replaces the attributes of ``Tensor`` that tell sizes for as long as the capture runs, so
that they cost nothing at other times. Tensors of other threads, and those that the capture does not know,
keep plain sizes.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tenon.export.sizes import symbol
from tenon.export.symbolic.traced_numbers import TracedSize, untraced
from tenon.export.symbolic.tracing import Tracing
from tenon.graph import shape_requests
from tenon.graph.graph import Ref
from tenon.kernels.shapes import normalize_axis
from tenon.tensors.size import Size
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.export.recorder import CaptureRecorder

_ABSENT = object()


class SizeTracer:
    """Gives the sizes of the tensors of one capture."""

    def __init__(self, recorder: CaptureRecorder) -> None:
        self.recorder = recorder
        #: Argument -> the axes whose sizes may change.
        self.axes: Mapping[str, Mapping[int, object]] = recorder.free_axes
        self.decisions = recorder.captured.decisions
        self.tracing = Tracing(self.decisions, recorder.listening)
        self._names: dict[tuple[Ref, int], str] = {}

    def shape(self, tensor: Tensor) -> Size:
        """Return the shape of a tensor, with traced sizes where it may depend on those that are free."""
        sizes = tensor.raw.shape
        if not self.recorder.listening():
            return tuple.__new__(Size, sizes)
        entry = self.recorder.values.find(tensor.raw)
        if entry is None:
            return tuple.__new__(Size, sizes)
        ref = entry.ref
        free = range(len(sizes)) if ref.node.kind != "input" else self.axes.get(ref.node.label, {})
        return tuple.__new__(
            Size, [self._size(ref, axis, size) if axis in free else size for axis, size in enumerate(sizes)]
        )

    def _size(self, ref: Ref, axis: int, size: int) -> int:
        name = self._names.get((ref, axis))
        if name is None:
            name = self._names[ref, axis] = f"size {len(self._names)}"
            self.decisions.leaves[name] = (ref, axis)
        return TracedSize.of(int(size), self.tracing, symbol(name))


def _cut(total: int, step: int) -> list[int]:
    """Return the sizes of the parts of an axis of size ``total`` that is cut at every ``step``."""
    count = 1
    while count * step < total:
        count += 1
    return [step] * (count - 1) + [total - (count - 1) * step]


def _chunks(total: int, chunks: int) -> list[int]:
    """Return the sizes of the ``chunks`` of an axis of size ``total``; they may be fewer."""
    step = (total + chunks - 1) // chunks
    count = 1
    if chunks == 2:
        count = 1 if total == 1 else 2
    while chunks > 2 and count < chunks and count * step < total:
        count += 1
    return [step] * (count - 1) + [total - (count - 1) * step]


@contextlib.contextmanager
def traced_sizes(tracer: SizeTracer) -> Iterator[None]:
    """Trace the sizes of tensors in the block. There is one recorder, and so one block, at a time."""

    def shape(tensor: Tensor) -> Size:
        return tracer.shape(tensor)

    def size(tensor: Tensor, dim: int | None = None) -> Any:  # an int with ``dim``, else Size
        sizes = tracer.shape(tensor)
        return sizes if dim is None else sizes[normalize_axis(dim, tensor.raw.ndim)]

    def numel(tensor: Tensor) -> int:
        return math.prod(tracer.shape(tensor))

    def length(tensor: Tensor) -> int:
        plain = before_length(tensor)
        first = tuple.__getitem__(tracer.shape(tensor), 0)
        if type(first) is TracedSize:
            tracer.tracing.converted(first, "len()", sys._getframe(1))
        return plain

    before_length = Tensor.__len__
    attributes = {
        "shape": property(shape), "size": size, "numel": numel, "nelement": numel, "__len__": length,
    }  # fmt: skip
    before = {name: vars(Tensor).get(name, _ABSENT) for name in attributes}
    for name, value in attributes.items():
        setattr(Tensor, name, value)

    def requested(kind: str, shape: tuple[int, ...], sizes: Any) -> Any:  # as ``shape_requests.Sizes``
        answered = shape_requests.answer(kind, untraced(shape), untraced(sizes))
        parts: Any = None  # a list of sizes
        if kind == "chunks" and type(shape[0]) is TracedSize:
            parts = _chunks(shape[0], sizes)
        elif kind == "cut" and isinstance(sizes, list | tuple):
            parts = list(sizes)
        elif kind == "cut" and sizes > 0 and type(shape[0]) is TracedSize:
            parts = _cut(shape[0], sizes)
            return parts if untraced(sizes) == answered else answered
        return parts if parts is not None and untraced(parts) == list(answered) else answered

    try:
        with shape_requests.handled_by(requested):
            yield
    finally:
        tracer.tracing.runs = False
        for name, value in before.items():
            if value is _ABSENT:
                delattr(Tensor, name)
            else:
                setattr(Tensor, name, value)
