"""The walk of a recurrent layer over its steps: packed weights, products, parts of the batch on threads.

Sequences of a batch do not need each other, so each thread takes some of them through all steps: no thread
waits for another, and a step of 16 rows runs at the rate of 32. Per part, ``steps`` (``jit/loops/rnn.py``)
says what the compiled walk calls at each step.

Measured on one core, 64 steps, batch 32, width 256, forward with what the gradient needs: oneDNN's own LSTM
primitive takes as long as this (21 ms) but keeps four times the memory, and its gradient takes 42 ms and
always computes the input's.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from tenon_cpu.onednn import signatures as c
from tenon_cpu.onednn.attributes import Attributes
from tenon_cpu.onednn.cache import Cache
from tenon_cpu.onednn.descriptors import Descriptor
from tenon_cpu.onednn.primitives import Execution, Memory, Primitive, address, address_of, reorder
from tenon_cpu.onednn.runtime import runtime
from tenon_cpu.threads import split, usable

_FLOAT = np.dtype(np.float32)
_cache = Cache("recurrent layers")
#: Sequences that a thread is worth, and steps from which weights are worth being packed.
_LEAST_ROWS, _LEAST_STEPS = 8, 6


class Weights(NamedTuple):
    """``inner x columns`` weights; ``lie``: "plain", "transposed", or the number of rows it is packed for."""

    memory: Memory | None
    inner: int
    columns: int
    lie: str | int
    layout: Descriptor | None = None


def transposed(weight: np.ndarray, steps: int, rows: int) -> Weights:
    """``weight.T``, packed for products of some ``rows`` rows where there are enough ``steps``."""
    columns, inner = weight.shape
    packing = None
    if steps >= _LEAST_STEPS:
        packing = _cache.get(("pack", inner, columns, rows), _packing, inner, columns, rows)
    if packing is None:
        return Weights(weight, inner, columns, "transposed")
    layout, copy = packing
    memory = layout.buffer()
    copy.bind(c.SRC, weight)
    copy.bind(c.DST, memory)
    copy()
    copy.release()
    return Weights(memory, inner, columns, rows, layout)


def _packing(inner: int, columns: int, rows: int) -> tuple[Descriptor, Execution] | None:
    """The layout that is best, and what copies there; None where it has no blocks, as for AVX2: from the
    columns of the weight as it lies a product is as quick, and quicker where rows of the copy are whole
    pages (32 x 256 x 1024: 0.30 against 0.43 ms)."""
    primitive = _product(rows, inner, columns, Descriptor.any((inner, columns), _FLOAT), False)
    layout = primitive.layout(c.WEIGHTS)
    if layout == Descriptor.rows((inner, columns), _FLOAT):
        return None
    plain = Descriptor.strided((inner, columns), (1, inner), _FLOAT)
    return layout, reorder(plain, layout).execution({c.SRC: None, c.DST: None})


def plain(weight: np.ndarray) -> Weights:
    """``weight`` as it is."""
    inner, columns = weight.shape
    return Weights(weight, inner, columns, "plain")


def _product(rows: int, inner: int, columns: int, weights: Descriptor, accumulate: bool) -> Primitive:
    x, out = (Descriptor.rows((rows, size), _FLOAT) for size in (inner, columns))
    attributes = Attributes((("sum",),) if accumulate else ())
    return Primitive("matmul", x, weights, None, out, attributes=attributes)


def _execution(rows: int, weights: Weights, accumulate: bool) -> Execution:
    inner, columns = weights.inner, weights.columns
    strides = (1, inner) if weights.lie == "transposed" else (columns, 1)
    layout = weights.layout or Descriptor.strided((inner, columns), strides, _FLOAT)
    primitive = _product(rows, inner, columns, layout, accumulate)
    return primitive.execution({c.SRC: None, c.WEIGHTS: None, c.DST: None})


class StepProducts(Protocol):
    """The products of a walk: ``Products``, or others whose machine code the loops call in the same way."""

    def lines(
        self, starts: np.ndarray, sizes: np.ndarray, first: int, last: int, alone: bool
    ) -> tuple[np.ndarray, np.ndarray, list[Execution]]:
        """``library`` and ``steps`` for the sequences from ``first`` to ``last``, and what they point to."""


class Products:
    """``x @ weights``: what a walk computes at each step, or adds to what is there with ``accumulate``.

    ``fixed`` has a row per sequence: it is the operand if the walk says at each step where the result goes
    (``moves`` is DST), or the result if the walk says where the operand lies (SRC).
    """

    def __init__(self, weights: Weights, fixed: np.ndarray, moves: int, accumulate: bool) -> None:
        self.weights, self.fixed, self.moves, self.accumulate = weights, fixed, moves, accumulate

    def execution(self, rows: int, alone: bool) -> Execution:
        """The product of ``rows`` rows, with its weights."""
        weights = self.weights
        key = (rows, weights.inner, weights.columns, weights.lie, self.accumulate, alone)
        execution = _cache.get(key, _execution, rows, weights, self.accumulate)
        execution.point(c.WEIGHTS, address(weights.memory))
        return execution

    def lines(
        self, starts: np.ndarray, sizes: np.ndarray, first: int, last: int, alone: bool
    ) -> tuple[np.ndarray, np.ndarray, list[Execution]]:
        """``library`` and ``steps`` for the sequences from ``first`` to ``last``, and what they point to."""
        steps = np.empty((len(sizes), 6), np.int64)
        steps[:, 0] = starts
        counts = steps[:, 1] = np.clip(sizes, first, last) - first
        executions: list[Execution] = []
        other = c.SRC if self.moves == c.DST else c.DST
        address_of_rows = address_of(self.fixed) + first * self.fixed.strides[0]
        for count in counts[:1].tolist() if counts[0] == counts[-1] else np.unique(counts).tolist():
            if not count:
                continue
            execution = self.execution(count, alone)
            execution.point(other, address_of_rows)
            handle, stream, arguments, array = execution.run
            call = (
                handle.value or 0,
                arguments,
                ctypes.addressof(array),
                execution.memory(self.moves).value or 0,
            )
            steps[counts == count, 2:] = call
            executions.append(execution)
        if not executions:
            return np.zeros(3, np.int64), steps, executions
        functions = (executions[0].execute, executions[0].set_handle)
        library = [*(ctypes.cast(f, ctypes.c_void_p).value for f in functions), stream.value]
        return np.array(library, np.int64), steps, executions


def parts(sizes: Sequence[int]) -> list[int]:
    """Bounds of the sequences that each thread takes, of about as many rows each."""
    batch, threads = sizes[0], usable()
    count = max(1, min(threads, batch // _LEAST_ROWS))
    if count == 1:
        return [0, batch]
    if sizes[-1] == batch:
        return [batch * i // count for i in range(count + 1)]
    ends = np.cumsum(np.bincount(np.asarray(sizes), minlength=batch + 1)[:0:-1].cumsum()[::-1])
    return [0, *(int(np.searchsorted(ends, ends[-1] * i / count)) + 1 for i in range(1, count)), batch]


def walk(
    loop: Callable[..., int], products: StepProducts, sizes: Sequence[int], reverse: bool, *arrays: Any
) -> None:
    """``loop(library, steps, first, reverse, *arrays)`` for each part of the batch."""
    lengths = np.asarray(sizes, np.int64)
    starts = np.cumsum(lengths) - lengths
    bounds = parts(sizes)
    shared = len(bounds) > 2

    def part(first: int, last: int) -> None:
        library, steps, executions = products.lines(starts, lengths, first, last, shared)
        status = loop(library, steps, first, reverse, *arrays)
        if status:
            raise executions[0].failed(status)

    def work(start: int, stop: int) -> None:
        with _one_thread():
            for i in range(start, stop):
                part(bounds[i], bounds[i + 1])

    if shared:
        split(work, len(bounds) - 1)
    else:
        part(0, sizes[0])


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Inside, oneDNN computes on the calling thread alone: its fellows work beside it."""
    here = runtime()
    if here.openmp is None:
        yield
        return
    here.openmp.omp_set_num_threads(1)
    try:
        yield
    finally:
        here.set_threads()


__all__ = ["Products", "Weights", "parts", "plain", "transposed", "walk"]
