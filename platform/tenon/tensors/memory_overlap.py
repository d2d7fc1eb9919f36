"""Check for memory overlap between inputs and outputs of in-place ops and ``out=``, as PyTorch does.

An elementwise op may overwrite an operand exactly, but not partially; indexing ops may not overwrite any.
As in PyTorch, tensors with gaps are not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NoReturn

from tenon.engine.op import Kind, Op, table
from tenon.engine.value import Value
from tenon.errors import ViewError

if TYPE_CHECKING:
    from tenon.engine.types import Array

#: Elementwise in-place functions, besides those that have the name of an elementwise op.
_ELEMENTWISE = frozenset(["addcdiv", "addcmul", "clamp_max", "clamp_min", "lerp", "masked_fill", "power"])
#: In-place functions that write at indices.
_INDEXED = frozenset(["index_add", "index_copy", "index_fill", "index_put", "put", "scatter", "scatter_add"])
#: In-place functions that copy a 0-d value before they write.
_COPYING_NUMBERS = frozenset(["index_fill", "masked_fill"])


def check_read(op: Op | Callable[..., object], x: Value, args: Iterable[object]) -> None:
    """Raise ViewError if the in-place ``op`` on ``x`` reads from ``args`` memory that it overwrites."""
    name = op.__name__
    indexed = name in _INDEXED
    if not indexed and name not in _ELEMENTWISE:
        known = table.by_name.get(name)
        if known is None or known.kind is not Kind.ELEMENTWISE:
            return
    parts = [a for a in args if isinstance(a, Value)]
    if name in _COPYING_NUMBERS or (indexed and isinstance(op, Op)):  # the op itself: ``x[mask] = x[0, 0]``
        parts = [a for a in parts if a.raw.ndim]
    if indexed:
        refuse_overlap(x, *parts)
    else:
        refuse_partial(x, *parts)


def refuse_overlap(out: Value, *parts: Value) -> None:
    """Raise ViewError if ``out`` is one of ``parts`` or overlaps its memory."""
    for part in parts:
        if part is out or _overlap(out, part):
            _refuse()


def refuse_partial(out: Value, *parts: Value) -> None:
    """Raise ViewError if ``out`` overlaps one of ``parts`` partially, not element for element."""
    for part in parts:
        if part is not out and _overlap(out, part):
            a, b = out.raw, part.raw
            first = (slice(0, 1),) * a.ndim
            if a.shape != b.shape or a.strides != b.strides or a.dtype != b.dtype:
                _refuse()
            if not out._backend.shares_memory(a[first], b[first]):
                _refuse()


def _overlap(x: Value, y: Value) -> bool:
    """Whether two dense tensors overlap."""
    a, b, backend = x.raw, y.raw, x._backend
    if backend is not y._backend or not hasattr(a, "strides") or not a.size or not b.size:
        return False
    return bool(backend.shares_memory(a, b)) and _dense(a) and _dense(b)


def _dense(a: Array) -> bool:
    """Whether ``a`` is non-overlapping and dense, in any axis order."""
    last = sum((size - 1) * abs(step) for size, step in zip(a.shape, a.strides, strict=True))
    return bool(last + a.itemsize == a.nbytes)


def _refuse() -> NoReturn:
    raise ViewError(
        "unsupported operation: some elements of the input tensor and the written-to tensor refer to"
        " a single memory location. Please clone() the tensor before performing the operation."
    )
