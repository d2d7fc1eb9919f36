"""Elementwise ops on 16-bit floats: one kernel for each op and its operands' dtypes, for all sizes.

NumPy converts such floats one by one. A kernel here loads them, computes in float32 and rounds the result to
nearest, ties to even; NaN stays NaN. The formulas are those of clusters. A kernel loops over rows and
columns: operands may be broadcast along either, and numbers are arguments, so that few kernels support all
shapes. ``short_floats/ops.py`` has the conditions for calls.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Mapping, Sequence

import numpy as np

from tenon.extend import Aval, Op, Operand, errors
from tenon.extend import cluster as _described
from tenon.ops import cast as _cast
from tenon_cpu.jit.compiler import llvm
from tenon_cpu.jit.compiler.builtin import DATA
from tenon_cpu.jit.compiler.llvm import driver
from tenon_cpu.jit.eager_ops.calls import memory_order
from tenon_cpu.jit.emission.functions import REAL, Code, Type, Val, reading, type_of
from tenon_cpu.jit.emission.pointwise import emit_step

#: Elements of a row where an array has no rows of its own.
_ROW = 1 << 12
#: Elements from which a second thread pays.
_SHARED = 1 << 17
#: Kinds of operands: an array's row, one element for a row, a number, None.
ALONG, SAME, NUMBER, NONE = "along", "same", "number", "none"

_STEP = _described.Step
_NUMBERS = frozenset((bool, int, float))


@functools.lru_cache(1024)
def _entry(step: _described.Step, operands: tuple[tuple[str, str], ...]) -> llvm.Entry | None:
    """The kernel of ``step`` for operands of these dtypes and kinds; None if there is no code for it."""
    code, kinds = Code(fma=llvm.compiler().has_fma), list[Type]()
    for name, how in operands:
        kind = type_of(name) if how in (ALONG, SAME) else REAL
        if kind is None:
            return None
        kinds.append(kind)
    if type_of(step.aval.dtype) is None:
        return None
    fixed: list[Val | None] = [None] * len(operands)
    for k, (_, how) in enumerate(operands):
        if how == NUMBER:
            fixed[k] = Val(code.let(f"bitcast i64 %s{k} to double"), REAL)
    try:
        with code.loop("%first", "%last") as row:
            starts = [code.let(f"mul nsw i64 {row}, %s{k}") for k in range(len(operands))]
            target = code.let(f"mul nsw i64 {row}, %columns")
            for k, (_, how) in enumerate(operands):
                if how == SAME:
                    fixed[k] = code.load(f"%a{k}", kinds[k], starts[k])
            with code.loop(0, "%columns") as column:
                values = list(fixed)
                for k, (_, how) in enumerate(operands):
                    if how == ALONG:
                        values[k] = code.load(f"%a{k}", kinds[k], code.plus(starts[k], column))
                code.store(emit_step(code, step, values), "%out", code.plus(target, column))
    except errors.NotFusableError:
        return None
    return llvm.load(_module(code, len(operands)))


def _module(code: Code, count: int) -> str:
    """The text of ``code`` as a function, and of the one that reads its arguments from the table.

    The table has the rows, the columns, the address of the result, and of each operand its address and the
    stride of its rows.
    """
    ins = "".join(f", ptr noalias %a{k}, i64 %s{k}" for k in range(count))
    body = code.function("body", f"i64 %columns, ptr noalias %out{ins}, i64 %first, i64 %last")
    work = reading("body", ["i64", "ptr", *("ptr", "i64") * count], 1)
    return "\n".join([body, work, *code.declared.values()]) + driver(None)


@functools.lru_cache(1024)
def _step(
    name: str, text: str, attrs: tuple[tuple[str, object], ...], out: np.dtype, computed: np.dtype
) -> _described.Step:
    return _STEP(name, (), attrs, Aval((), out), text, computed)


def elementwise(
    op: Op, args: Sequence[Operand], attrs: Mapping[str, object], computed: np.dtype, dtype: np.dtype,
    out: np.ndarray | None = None,
) -> np.ndarray | None:  # fmt: skip
    """``op`` of arrays, Python numbers and None, as an array of ``dtype``; None if there is no code for it.

    ``out`` may be one of the operands.
    """
    text = op.expression_for(args, attrs)
    if text is None:
        return None
    attrs = {**op.defaults, **attrs} if op.defaults else attrs
    arrays = [a for a in args if isinstance(a, np.ndarray)]
    shape = arrays[0].shape
    layout: tuple[int, int, list[tuple[int, int]]] | None
    axes = () if arrays[0].flags.c_contiguous else memory_order(arrays[0])
    if axes and all(a.ndim == len(axes) for a in arrays):  # in the order of memory, which the result keeps
        transposed = [a.transpose(axes) if isinstance(a, np.ndarray) else a for a in args]
        own_out = out if out is None else out.transpose(axes)
        result = elementwise(op, transposed, attrs, computed, dtype, own_out)
        return None if result is None else result.transpose(np.argsort(axes))
    if all(a.shape == shape and a.flags.c_contiguous for a in arrays):
        layout = 1, arrays[0].size, [(0, 1)] * len(arrays)
    else:
        shape = np.broadcast_shapes(*[a.shape for a in arrays])
        layout = _layout(shape, arrays)
    if layout is None:
        arrays = [np.ascontiguousarray(np.broadcast_to(a, shape)) for a in arrays]
        layout = _layout(shape, arrays)
        assert layout is not None
    rows, columns, strides = layout
    remaining = iter(zip(arrays, strides, strict=True))
    operands, words, inputs = [], [], []
    for a in args:
        if isinstance(a, np.ndarray):
            array, (step, inner) = next(remaining)
            inputs.append(array)
            operands.append((_name(array.dtype), ALONG if inner else SAME))
            words += [_address(array), step]
        elif a is None:
            operands.append(("", NONE))
            words += [0, 0]
        else:
            operands.append(("", NUMBER))
            words += [0, struct.unpack("<q", struct.pack("<d", float(a)))[0]]
    entry = _entry(_step(op.name, text, tuple(sorted(attrs.items())), dtype, computed), tuple(operands))
    if entry is None:
        return None
    if out is None:
        out = np.empty(shape, dtype)
    start = _address(out)
    threads = llvm.ALL if rows * columns >= _SHARED else 1
    if rows == 1 and columns > _ROW and all(how != SAME for _, how in operands):
        _in_rows(entry, columns, start, out.itemsize, words, inputs, threads)
    else:
        _run(entry, threads, rows, columns, start, *words)
    return out


def _in_rows(
    entry: llvm.Entry, count: int, start: int, size: int, words: list[int], inputs: list[np.ndarray],
    threads: int,
) -> None:  # fmt: skip
    """Compute one long row as many short ones, which threads share, and the rest."""
    rows, sizes = count // _ROW, iter([a.itemsize for a in inputs])
    pairs = [(words[k], words[k + 1]) for k in range(0, len(words), 2)]
    first, last = [], []
    done = rows * _ROW
    for address, step in pairs:
        first += [address, _ROW if address else step]
        last += [address + done * next(sizes) if address else 0, step]
    _run(entry, threads, rows, _ROW, start, *first)
    if count > done:
        _run(entry, 1, 1, count - done, start + done * size, *last)


def _run(entry: llvm.Entry, threads: int, *words: int) -> None:
    table = (ctypes.c_int64 * len(words))(*words)
    entry(ctypes.addressof(table), threads)


@functools.lru_cache(64)
def _name(dtype: np.dtype) -> str:
    return dtype.name


def _address(array: np.ndarray) -> int:
    """The address of an array, from its struct, NumPy's documented C interface (0.3 us; attributes 1.2)."""
    return int(ctypes.c_int64.from_address(id(array) + DATA).value)


def _layout(
    shape: tuple[int, ...], arrays: list[np.ndarray]
) -> tuple[int, int, list[tuple[int, int]]] | None:
    """Rows, columns, and each array's strides along both in elements; None if two axes are not enough."""
    rank = len(shape)
    merged: list[tuple[int, list[int]]] = []
    for axis in range(rank - 1, -1, -1):
        size = shape[axis]
        if size == 1:
            continue
        steps = []
        for a in arrays:
            own = axis - rank + a.ndim
            steps.append(a.strides[own] // a.itemsize if own >= 0 and a.shape[own] != 1 else 0)
        if merged and all(s == t * merged[-1][0] for s, t in zip(steps, merged[-1][1], strict=True)):
            merged[-1] = (merged[-1][0] * size, merged[-1][1])
        else:
            merged.append((size, steps))
    while len(merged) < 2:
        merged.append((1, [0] * len(arrays)))
    (columns, inner), (rows, outer) = merged[:2]
    if len(merged) > 2 or any(s not in (0, 1) for s in inner):
        return None
    return rows, columns, list(zip(outer, inner, strict=True))


def cast(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """``x``, of floats of 16 or 32 bits, in another such dtype; a new array without gaps."""
    result = elementwise(_cast, (x,), {}, x.dtype, dtype)
    assert result is not None
    return result


__all__ = ["cast", "elementwise"]
