"""Several bound kernels as one call: what makes a program of tiny steps run in a microsecond.

Calling machine code through ctypes costs a few hundred nanoseconds, more than a step of a tiny network takes.
Kernels that are bound to their arrays have nothing left to decide, so they are ``Entries``, a list of
addresses, and a built-in function of no arguments (``builtin.py``) that walks it: 80 ns for one, and no more
for a run of them. Matrix products too small for a library are generated here as well, so as not to break the
run.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from tenon_cpu.jit.compiler import builtin
from tenon_cpu.jit.compiler import llvm as llvm
from tenon_cpu.jit.compiler.llvm import driver
from tenon_cpu.jit.emission.functions import SPAN, Code, Type, Val, constant, reading, type_of

#: Multiplications up to which a product is written as loops.
SMALL = 1 << 12


class Entries(np.ndarray[Any, np.dtype[np.int64]]):
    """A line for each kernel: its machine code, its table of arrays, how many threads it can use."""

    #: What the lines point to, and lives as long.
    held: tuple[Any, ...]


def bound(entry: llvm.Entry, table: Any, threads: int, *held: Any) -> Callable[[], None]:
    """A kernel on fixed arrays, which ``held`` keeps alive: ``table`` has their addresses."""
    line = (llvm.address_of(entry), table.ctypes.data, threads)
    return _walk(np.array([line], np.int64), entry, table, *held)


def _walk(lines: Any, *held: Any) -> Callable[[], None]:
    entries = lines.view(Entries)
    entries.held = held
    return builtin.walk(entries)


def entries_of(thunk: Any) -> Entries | None:
    """The lines that a bound kernel walks; None for other functions."""
    found = getattr(thunk, "__self__", None)
    return found if isinstance(found, Entries) else None


def chain(thunks: Sequence[Callable[[], None]]) -> list[tuple[int, Callable[[], None]]]:
    """Runs of bound kernels as one call each: how many of ``thunks``, in order, each function does."""
    made: list[tuple[int, Callable[[], None]]] = []
    for several, group in itertools.groupby(thunks, lambda t: entries_of(t) is not None):
        run = list(group)
        if several and len(run) > 1:
            parts = [cast(Entries, entries_of(t)) for t in run]
            made.append((len(run), _walk(np.concatenate(parts), *parts)))
        else:
            made += [(1, t) for t in run]
    return made


def prepare(name: str, ins: Sequence[Any], attrs: Any, outs: Sequence[Any]) -> Callable[[], None] | None:
    """A bound kernel for a tiny matrix product; None for anything else."""
    if name != "matmul" or attrs or not llvm.available():
        return None
    x, y, out = *ins, outs[0]
    if not all(isinstance(a, np.ndarray) and a.dtype == out.dtype and 0 < a.ndim <= 2 for a in (x, y)):
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


def _steps(x: Any, y: Any, out: Any, size: int) -> list[tuple[int, int]]:
    """Strides along the matrices' two axes, in elements; 0 for those that a vector lacks."""
    (*row, along), (down, *column) = x.strides, y.strides
    spread = list(out.strides)
    of_row = spread.pop(0) if x.ndim == 2 else 0
    of_column = spread.pop(0) if y.ndim == 2 else 0
    pairs = ((row[0] if row else 0, along), (down, column[0] if column else 0), (of_row, of_column))
    return [(a // size, b // size) for a, b in pairs]


@functools.lru_cache(512)
def _product(
    kind: Type, sizes: tuple[int, int, int], a: tuple[int, int], b: tuple[int, int], c: tuple[int, int]
) -> str:
    """``out[i, j] = sum over k of x[i, k] y[k, j]`` as loops."""
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
            made = code.let(f"fadd reassoc contract {kind.reg} {old.text}, {product}")
            code.store(Val(made, kind), total)
        code.store(code.load(total, kind), "%out", code.plus(code.times(i, c[0]), code.times(j, c[1])))
    text = code.function("body", ", ".join(["ptr noalias %x, ptr noalias %y, ptr noalias %out", *SPAN]))
    return "\n".join([text, reading("body", ["ptr"] * 3)]) + driver(1)
