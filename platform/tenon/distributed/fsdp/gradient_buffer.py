"""Gradients of gathered parameters, written where their reduce-scatter reads them.

The buffer of a module group exists from its first gradient in a backward pass until that is reduced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tenon.distributed.fsdp.buffers import BufferPool, padded_to_line
from tenon.distributed.fsdp.gradient_windows import GradientWindows
from tenon.distributed.fsdp.sharded_parameter import ShardedParameter
from tenon.distributed.replicas.bucket_destination import MatmulInto
from tenon.engine.types import Array, NumpyDType, OpNamespace

COUNT_BYTES = 8
"""Room for a number of each parameter and rank."""
LARGE = 1 << 14
"""Elements of a matrix from which computing it in place pays off."""


class GradientBuffer:
    """Rows ``[ranks, count]`` of each of ``parameters``, in one buffer of ``pool``."""

    def __init__(
        self, parameters: Sequence[ShardedParameter], pool: BufferPool, windows: GradientWindows
    ) -> None:
        self._parameters, self._pool, self._windows = parameters, pool, windows
        self._rows: list[np.ndarray] | None = None
        self._rest = np.empty(0, np.uint8)
        self.size = 0
        """Bytes of the latest buffer."""
        self.piece: int | None = None
        """The piece of the windows in which it is."""
        self.on_arrival: Callable[[], None] | None = None
        """Is called when a gradient has arrived."""

    def rows(self, index: int) -> np.ndarray:
        """The rows of parameter ``index``, of undefined content at first, in the dtype of its whole."""
        if self._rows is None:
            dtypes = [p.whole.raw.dtype for p in self._parameters]
            used = bytes_of_rows(self._parameters, dtypes)
            self.size = used + len(self._parameters) * self._parameters[0].ranks * COUNT_BYTES
            found = self._windows.take(self.size)
            buffer, self.piece = (self._pool.take(self.size), None) if found is None else found
            self._rows, self._rest = rows_in(buffer, self._parameters, dtypes), buffer[used:]
        return self._rows[index]

    def counts(self, used: Sequence[bool], dtype: np.dtype) -> np.ndarray:
        """``used`` as numbers, the same row for each rank, behind the rows of the parameters."""
        shape = self._parameters[0].ranks, len(used)
        result = self._rest[: shape[0] * shape[1] * dtype.itemsize].view(dtype).reshape(shape)
        result[...] = used
        return result

    def write(self, index: int, gradient: np.ndarray | None) -> np.ndarray:
        """``gradient``, zeros for None, as rows; copied unless it was computed there."""
        rows, parameter = self.rows(index), self._parameters[index]
        flat, size = rows.reshape(-1), parameter.whole_size
        flat[size:] = 0
        part = parameter.whole_of(rows)
        if gradient is None:
            flat[:size] = 0
        elif not _is_same_memory(gradient, part):
            np.copyto(part, gradient, casting="same_kind")
        return rows

    def drop(self) -> None:
        """Forget the buffer; gradients that are views of it keep it."""
        self._rows, self._rest = None, np.empty(0, np.uint8)


class ShardDestination:
    """The ``GradientDestination`` of parameter ``index``: gradients are computed into, or moved to, its
    rows."""

    __slots__ = ("_buffer", "_index", "_large", "_parameter")

    def __init__(self, buffer: GradientBuffer, index: int, parameter: ShardedParameter) -> None:
        self._buffer, self._index, self._parameter = buffer, index, parameter
        self._large = len(parameter.shape) == 2 and parameter.whole_size >= LARGE and parameter.axis == 0

    def take(self, grad: Array) -> Array | None:
        """``grad`` in its rows; None if it is of another dtype or device."""
        part = self._part()
        if not isinstance(grad, np.ndarray) or grad.dtype != part.dtype:
            return None
        if not _is_same_memory(grad, part):
            np.copyto(part, grad)
        return part

    def ops(self, f: OpNamespace) -> OpNamespace:
        """``f`` with a ``matmul`` that writes into the rows once."""
        if not self._large or type(self._parameter.whole.raw) is not np.ndarray:
            return f
        return MatmulInto(f, self._parameter.whole._backend, self._part())

    def _part(self) -> np.ndarray:
        return self._parameter.whole_of(self._buffer.rows(self._index))

    def arrived(self) -> None:
        """Say so; gradients are reduced when the module's backward is complete."""
        if self._buffer.on_arrival is not None:
            self._buffer.on_arrival()


def bytes_of_rows(parameters: Sequence[ShardedParameter], dtypes: Sequence[NumpyDType]) -> int:
    """The size of the buffer that ``rows_in`` needs."""
    return sum(padded_to_line(size) for size in _sizes(parameters, dtypes))


def rows_in(
    buffer: np.ndarray, parameters: Sequence[ShardedParameter], dtypes: Sequence[NumpyDType]
) -> list[np.ndarray]:
    """Rows ``[ranks, count]`` of each parameter, as parts of ``buffer``."""
    rows, start = [], 0
    for parameter, dtype, size in zip(parameters, dtypes, _sizes(parameters, dtypes), strict=True):
        part = buffer[start : start + size].view(dtype)
        rows.append(part.reshape(parameter.ranks, parameter.count))
        start += padded_to_line(size)
    return rows


def _sizes(parameters: Sequence[ShardedParameter], dtypes: Sequence[NumpyDType]) -> list[int]:
    return [p.ranks * p.count * np.dtype(d).itemsize for p, d in zip(parameters, dtypes, strict=True)]


def _is_same_memory(a: np.ndarray, b: np.ndarray) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    x, y = a.__array_interface__["data"][0], b.__array_interface__["data"][0]
    return bool(x == y) and (a.strides == b.strides or a.size <= 1)
