"""Elementwise ops on floats of 16 bits: machine code for an op, with the sizes given at each call.

NumPy converts such floats one by one. Here a kernel reads them, computes in float32 and rounds what it
stores to nearest, ties to even; NaN stays NaN. The formulas are those of clusters. A kernel walks rows and
columns: operands broadcast along either, and numbers come with the call, so that few kernels serve all
shapes. ``short_floats/ops.py`` says which calls come here.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from tenon.extend import Aval, Op, errors
from tenon.extend import cluster as _described
from tenon.ops import cast as _cast
from tenon_cpu.jit.compiler import llvm
from tenon_cpu.jit.compiler.builtin import DATA
from tenon_cpu.jit.compiler.llvm import driver
from tenon_cpu.jit.eager_ops.calls import memory_order
from tenon_cpu.jit.emission.functions import REAL, Code, Val, reading, type_of
from tenon_cpu.jit.emission.pointwise import emit_step

#: Elements of a row where an array has no rows of its own.
_ROW = 1 << 12
#: Elements from which a second thread pays.
_SHARED = 1 << 17
#: How an operand lies along a row: element by element, one element, a number of the call, nothing.
ALONG, SAME, NUMBER, NONE = "along", "same", "number", "none"

_STEP = _described.Step
_NUMBERS = frozenset((bool, int, float))


@functools.lru_cache(1024)
def _entry(step: Any, operands: tuple[tuple[str, str], ...]) -> Any:
    """The kernel of ``step`` for operands of these (dtype, how they lie); None where there is no code."""
    out, code = type_of(step.aval.dtype), Code(fma=llvm.compiler().has_fma)
    kinds = [type_of(name) if how in (ALONG, SAME) else REAL for name, how in operands]
    if out is None or None in kinds:
        return None
    fixed: list[Any] = [None] * len(operands)
    for k, (_, how) in enumerate(operands):
        if how == NUMBER:
            fixed[k] = Val(code.let(f"bitcast i64 %s{k} to double"), REAL)
    try:
        with code.loop("%first", "%last") as row:
            starts = [code.let(f"mul nsw i64 {row}, %s{k}") for k in range(len(operands))]
            target = code.let(f"mul nsw i64 {row}, %columns")
            for k, (_, how) in enumerate(operands):
                if how == SAME:
                    fixed[k] = code.load(f"%a{k}", kinds[k], starts[k])  # type: ignore[arg-type]
            with code.loop(0, "%columns") as column:
                values = list(fixed)
                for k, (_, how) in enumerate(operands):
                    if how == ALONG:
                        place = code.plus(starts[k], column)
                        values[k] = code.load(f"%a{k}", kinds[k], place)  # type: ignore[arg-type]
                code.store(emit_step(code, step, values), "%out", code.plus(target, column))
    except errors.NotFusableError:
        return None
    return llvm.load(_module(code, len(operands)))


def _module(code: Code, count: int) -> str:
    """``code`` as a function, and the one that reads its arguments from the table: rows, columns, the
    result, then of each operand its address and the step from row to row."""
    given = "".join(f", ptr noalias %a{k}, i64 %s{k}" for k in range(count))
    body = code.function("body", f"i64 %columns, ptr noalias %out{given}, i64 %first, i64 %last")
    work = reading("body", ["i64", "ptr", *("ptr", "i64") * count], 1)
    return "\n".join([body, work, *code.declared.values()]) + driver(None)


@functools.lru_cache(1024)
def _step(name: str, text: str, attrs: tuple[Any, ...], out: Any, computed: Any) -> Any:
    return _STEP(name, (), attrs, Aval((), out), text, computed)


def elementwise(
    op: Op, args: Sequence[Any], attrs: dict[str, Any], computed: Any, dtype: Any, out: Any = None
) -> Any:
    """``op`` of arrays, Python numbers and None, as an array of ``dtype``; None where there is no code.

    ``out`` may be one of the operands.
    """
    text = op.expression_for(args, attrs)
    if text is None:
        return None
    attrs = {**op.defaults, **attrs} if op.defaults else attrs
    arrays = [a for a in args if isinstance(a, np.ndarray)]
    shape = arrays[0].shape
    laid: tuple[int, int, list[tuple[int, int]]] | None
    axes = () if arrays[0].flags.c_contiguous else memory_order(arrays[0])
    if axes and all(a.ndim == len(axes) for a in arrays):  # in memory's order, which the result keeps
        seen = [a.transpose(axes) if isinstance(a, np.ndarray) else a for a in args]
        made = elementwise(op, seen, attrs, computed, dtype, out if out is None else out.transpose(axes))
        return None if made is None else made.transpose(np.argsort(axes))
    if all(a.shape == shape and a.flags.c_contiguous for a in arrays):
        laid = 1, arrays[0].size, [(0, 1)] * len(arrays)
    else:
        shape = np.broadcast_shapes(*[a.shape for a in arrays])
        laid = _laid_out(shape, arrays)
    if laid is None:
        arrays = [np.ascontiguousarray(np.broadcast_to(a, shape)) for a in arrays]
        laid = _laid_out(shape, arrays)
        assert laid is not None
    rows, columns, strides = laid
    places = iter(zip(arrays, strides, strict=True))
    operands, words, held = [], [], []
    for a in args:
        if isinstance(a, np.ndarray):
            array, (step, inner) = next(places)
            held.append(array)
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
        _in_rows(entry, columns, start, out.itemsize, words, held, threads)
    else:
        _run(entry, threads, rows, columns, start, *words)
    return out


def _in_rows(
    entry: Any, count: int, start: int, size: int, words: list[int], held: list[Any], threads: int
) -> None:
    """One long row as many short ones, which threads share, and the rest."""
    whole, sizes = count // _ROW, iter([a.itemsize for a in held])
    pairs = [(words[k], words[k + 1]) for k in range(0, len(words), 2)]
    first, last = [], []
    done = whole * _ROW
    for address, step in pairs:
        first += [address, _ROW if address else step]
        last += [address + done * next(sizes) if address else 0, step]
    _run(entry, threads, whole, _ROW, start, *first)
    if count > done:
        _run(entry, 1, 1, count - done, start + done * size, *last)


def _run(entry: Any, threads: int, *words: int) -> None:
    table = (ctypes.c_int64 * len(words))(*words)
    entry(ctypes.addressof(table), threads)


@functools.lru_cache(64)
def _name(dtype: Any) -> str:
    return str(dtype.name)


def _address(array: Any) -> int:
    """From the array's head, which is NumPy's stated C interface (0.3 us; by its attributes 1.2)."""
    return int(ctypes.c_int64.from_address(id(array) + DATA).value)


def _laid_out(shape: tuple[int, ...], arrays: list[Any]) -> tuple[int, int, list[tuple[int, int]]] | None:
    """Rows, columns, and each array's steps along both in elements; None if they do not lie so."""
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


def cast(x: Any, dtype: Any) -> Any:
    """``x``, of floats of 16 or 32 bits, in another such dtype; a new array, contiguous."""
    made = elementwise(_cast, (x,), {}, x.dtype, dtype)
    assert made is not None
    return made


__all__ = ["cast", "elementwise"]
