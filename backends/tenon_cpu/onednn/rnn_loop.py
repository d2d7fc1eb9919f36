"""The loop of a recurrent layer over its steps: packed weights, products, the batch divided among
threads.

The sequences of a batch are independent, so each thread computes some of them for all steps: no thread waits
for another, and a step of 16 rows runs at the rate of 32. For each part of the batch ``steps``
(``jit/loops/rnn.py``) has the arguments of the product that the compiled loop calls at each step.

Measured on one core, 64 steps, batch 32, width 256, forward with residuals: oneDNN's own LSTM primitive takes
as long as this (21 ms) but keeps four times the memory, and its gradient takes 42 ms and always includes the
input's.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

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
#: Sequences from which a part is worth a thread, and steps from which weights are worth packing.
_LEAST_ROWS, _LEAST_STEPS = 8, 6


class Weights(NamedTuple):
    """``inner x columns`` weights; ``order``: "plain", "transposed", or rows they are packed for."""

    memory: Memory | None
    inner: int
    columns: int
    order: str | int
    layout: Descriptor | None = None


def transposed(weight: np.ndarray, steps: int, rows: int) -> Weights:
    """Return ``weight.T``, packed for products of about ``rows`` rows if there are enough ``steps``."""
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
    """Return the best layout and the reorder to it; None where that has no blocks, as for AVX2: a product
    with the column-major weight itself is as fast, and faster where rows of the copy are whole pages (32 x
    256 x 1024: 0.30 against 0.43 ms)."""
    primitive = _product(rows, inner, columns, Descriptor.any((inner, columns), _FLOAT), False)
    layout = primitive.layout(c.WEIGHTS)
    if layout == Descriptor.rows((inner, columns), _FLOAT):
        return None
    plain = Descriptor.strided((inner, columns), (1, inner), _FLOAT)
    return layout, reorder(plain, layout).execution({c.SRC: None, c.DST: None})


def plain(weight: np.ndarray) -> Weights:
    """Return ``weight`` without packing."""
    inner, columns = weight.shape
    return Weights(weight, inner, columns, "plain")


def _product(rows: int, inner: int, columns: int, weights: Descriptor, accumulate: bool) -> Primitive:
    x, out = (Descriptor.rows((rows, size), _FLOAT) for size in (inner, columns))
    attributes = Attributes((("sum",),) if accumulate else ())
    return Primitive("matmul", x, weights, None, out, attributes=attributes)


def _execution(rows: int, weights: Weights, accumulate: bool) -> Execution:
    inner, columns = weights.inner, weights.columns
    strides = (1, inner) if weights.order == "transposed" else (columns, 1)
    layout = weights.layout or Descriptor.strided((inner, columns), strides, _FLOAT)
    primitive = _product(rows, inner, columns, layout, accumulate)
    return primitive.execution({c.SRC: None, c.WEIGHTS: None, c.DST: None})


class StepProducts(Protocol):
    """The products of a loop: ``Products``, or generated code that the loops call in the same way."""

    def lines(
        self, starts: np.ndarray, sizes: np.ndarray, first: int, last: int, alone: bool
    ) -> tuple[np.ndarray, np.ndarray, list[Execution]]:
        """Return ``library`` and ``steps`` for sequences ``first`` to ``last``, and the executions that they
        point to."""


class Products:
    """``x @ weights``, which the loop computes at each step; with ``accumulate`` it is added to the output.

    ``fixed`` has a row per sequence: it is the operand if the loop sets the address of the result at each
    step (``moves`` is DST), or the result if the loop sets the address of the operand (SRC).
    """

    def __init__(self, weights: Weights, fixed: np.ndarray, moves: int, accumulate: bool) -> None:
        self.weights, self.fixed, self.moves, self.accumulate = weights, fixed, moves, accumulate

    def execution(self, rows: int, alone: bool) -> Execution:
        """Return the product of ``rows`` rows, bound to the weights."""
        weights = self.weights
        key = (rows, weights.inner, weights.columns, weights.order, self.accumulate, alone)
        execution = _cache.get(key, _execution, rows, weights, self.accumulate)
        execution.point(c.WEIGHTS, address(weights.memory))
        return execution

    def lines(
        self, starts: np.ndarray, sizes: np.ndarray, first: int, last: int, alone: bool
    ) -> tuple[np.ndarray, np.ndarray, list[Execution]]:
        """Return ``library`` and ``steps`` for sequences ``first`` to ``last``, and the executions that they
        point to."""
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
    """Return the bounds of each thread's sequences, with about as many rows in each part."""
    batch, threads = sizes[0], usable()
    count = max(1, min(threads, batch // _LEAST_ROWS))
    if count == 1:
        return [0, batch]
    if sizes[-1] == batch:
        return [batch * i // count for i in range(count + 1)]
    ends = np.cumsum(np.bincount(np.asarray(sizes), minlength=batch + 1)[:0:-1].cumsum()[::-1])
    return [0, *(int(np.searchsorted(ends, ends[-1] * i / count)) + 1 for i in range(1, count)), batch]


def run_loop(
    loop: Callable[..., int], products: StepProducts, sizes: Sequence[int], reverse: bool, *arrays: object
) -> None:
    """Call ``loop(library, steps, first, reverse, *arrays)`` for each part of the batch, on the threads."""
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
    """Within the context oneDNN uses the calling thread only, as the other threads compute other parts."""
    here = runtime()
    if here.openmp is None:
        yield
        return
    here.openmp.omp_set_num_threads(1)
    try:
        yield
    finally:
        here.set_threads()


__all__ = ["Products", "Weights", "parts", "plain", "run_loop", "transposed"]
