"""Call several bound kernels at once, so that a program of tiny steps runs in a microsecond.

Calling machine code through ctypes costs a few hundred nanoseconds, more than a step of a tiny network takes.
Kernels that are bound to their arrays need no arguments, so they are ``Entries``, a list of addresses, and a
built-in function (``builtin.py``) that walks it: 80 ns for one, and no more for a run of them. Matrix
products too small for a library are generated here as well, so as not to break the run.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tenon_cpu.jit.compiler import builtin
from tenon_cpu.jit.compiler import llvm as llvm
from tenon_cpu.jit.compiler.llvm import driver
from tenon_cpu.jit.emission.functions import SPAN, Code, Type, Val, constant, reading, type_of

#: An input of a step in a compiled program.
Input = np.ndarray | float | None
#: Multiplications up to which a product is written as loops.
SMALL = 1 << 12


class Entries(np.ndarray[tuple[int, int], np.dtype[np.int64]]):
    """A line for each kernel: the addresses of its entry and of its table, the number of threads."""

    #: The objects that the lines point to.
    references: tuple[object, ...]


def bound(entry: llvm.Entry, table: np.ndarray, threads: int, *references: object) -> Callable[[], None]:
    """A function that calls ``entry`` on ``table``, which has the addresses of the arrays in
    ``references``."""
    line = (llvm.address_of(entry), table.ctypes.data, threads)
    return _walk(np.array([line], np.int64), entry, table, *references)


def _walk(lines: np.ndarray, *references: object) -> Callable[[], None]:
    entries = lines.view(Entries)
    entries.references = references
    return builtin.walk(entries)


def entries_of(thunk: Callable[[], None]) -> Entries | None:
    """The lines that a bound kernel walks; None for other functions."""
    own = getattr(thunk, "__self__", None)
    return own if isinstance(own, Entries) else None


def chain(thunks: Sequence[Callable[[], None]]) -> list[tuple[int, Callable[[], None]]]:
    """Merge runs of bound kernels: pairs of how many of ``thunks``, in order, a function executes, and it."""
    merged: list[tuple[int, Callable[[], None]]] = []
    for walks, group in itertools.groupby(thunks, lambda t: entries_of(t) is not None):
        run = list(group)
        if walks and len(run) > 1:
            parts = [entries for t in run if (entries := entries_of(t)) is not None]
            merged.append((len(run), _walk(np.concatenate(parts), *parts)))
        else:
            merged += [(1, t) for t in run]
    return merged


def prepare(
    name: str, ins: Sequence[Input], attrs: Mapping[str, object], outs: Sequence[np.ndarray]
) -> Callable[[], None] | None:
    """A bound kernel for a tiny matrix product; None for all other calls."""
    if name != "matmul" or attrs or not llvm.available():
        return None
    x, y, out = *ins, outs[0]
    if not (isinstance(x, np.ndarray) and isinstance(y, np.ndarray)):
        return None
    if not all(a.dtype == out.dtype and 0 < a.ndim <= 2 for a in (x, y)):
        return None
    kind = type_of(out.dtype)
    if kind is None or kind.name not in ("float32", "float64") or not (x.size and y.size):
        return None
    if out.size * x.shape[-1] > SMALL or np.may_share_memory(out, x) or np.may_share_memory(out, y):
        return None
    if any(s % kind.size for a in (x, y, out) for s in a.strides):
        return None
    rows = x.shape[0] if x.ndim == 2 else 1
    columns = y.shape[1] if y.ndim == 2 else 1
    text = _product(kind, (rows, x.shape[-1], columns), *_steps(x, y, out, kind.size))
    table = np.array([a.__array_interface__["data"][0] for a in (x, y, out)], np.int64)
    return bound(llvm.load(text), table, 1, x, y, out)


def _steps(
    x: np.ndarray, y: np.ndarray, out: np.ndarray, size: int
) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    """The strides of ``x``, ``y`` and ``out`` along two axes, in elements; 0 if a vector lacks the axis."""
    (*row, along), (down, *column) = x.strides, y.strides
    rest = list(out.strides)
    of_row = rest.pop(0) if x.ndim == 2 else 0
    of_column = rest.pop(0) if y.ndim == 2 else 0
    of_x, of_y = (row[0] if row else 0, along), (down, column[0] if column else 0)
    return _divided(of_x, size), _divided(of_y, size), _divided((of_row, of_column), size)


def _divided(strides: tuple[int, int], size: int) -> tuple[int, int]:
    return strides[0] // size, strides[1] // size


@functools.lru_cache(512)
def _product(
    kind: Type, sizes: tuple[int, int, int], a: tuple[int, int], b: tuple[int, int], c: tuple[int, int]
) -> str:
    """The module of ``out[i, j] = sum over k of x[i, k] y[k, j]`` for these sizes and strides."""
    code = Code(fma=llvm.compiler().has_fma)
    rows, inner, columns = sizes
    with code.loop(0, rows) as i, code.loop(0, columns) as j:
        total = code.variable(kind)
        code.store(Val(constant(0, kind), kind), total)
        with code.loop(0, inner) as k:
            x = code.load("%x", kind, code.plus(code.times(i, a[0]), code.times(k, a[1])))
            y = code.load("%y", kind, code.plus(code.times(k, b[0]), code.times(j, b[1])))
            product = code.let(f"fmul contract {kind.reg} {x.text}, {y.text}")
            old = code.load(total, kind)
            added = code.let(f"fadd reassoc contract {kind.reg} {old.text}, {product}")
            code.store(Val(added, kind), total)
        code.store(code.load(total, kind), "%out", code.plus(code.times(i, c[0]), code.times(j, c[1])))
    text = code.function("body", ", ".join(["ptr noalias %x, ptr noalias %y, ptr noalias %out", *SPAN]))
    return "\n".join([text, reading("body", ["ptr"] * 3)]) + driver(1)
