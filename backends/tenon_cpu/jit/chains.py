"""Several bound kernels as one call: what makes a program of tiny steps run in a microsecond.

Calling machine code from Python costs a few hundred nanoseconds, more than a step of a tiny network takes.
Kernels that are bound to their arrays have nothing left to decide, so a run of them is a list of addresses
that machine code walks. Matrix products too small for a library are generated here as well, so as not to
break the run.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenon_cpu.jit import codegen_llvm
from tenon_cpu.jit.codegen import Code, Type, Val, constant, type_of
from tenon_cpu.jit.codegen_llvm import driver

#: Multiplications up to which a product is written as loops.
SMALL = 1 << 12


class Bound(functools.partial[None]):
    """A kernel on fixed arrays, which it keeps alive: machine code, a table and a number of threads."""

    held: tuple[Any, ...]

    def keeping(self, *held: Any) -> Bound:
        """Itself, with what must live as long."""
        self.held = held
        return self


def chain(thunks: Sequence[Callable[[], None]]) -> list[tuple[int, Callable[[], None]]]:
    """Runs of bound kernels as one call each: how many of ``thunks``, in order, each function does."""
    made: list[tuple[int, Callable[[], None]]] = []
    for bound, group in itertools.groupby(thunks, lambda t: isinstance(t, Bound)):
        run: list[Any] = list(group)
        if bound and len(run) > 1:
            made.append((len(run), _together(run)))
        else:
            made += [(1, t) for t in run]
    return made


def _together(run: list[Bound]) -> Bound:
    words = [w for t in run for w in (codegen_llvm.address_of(t.func), *t.args)]
    listed = np.array(words, np.int64)
    entry = codegen_llvm.load(codegen_llvm.CHAIN)
    return Bound(entry, listed.ctypes.data, len(run)).keeping(listed, *run)


def prepare(name: str, ins: Sequence[Any], attrs: Any, outs: Sequence[Any]) -> Callable[[], None] | None:
    """A bound kernel for a tiny matrix product; None for anything else."""
    if name != "matmul" or attrs or not codegen_llvm.available():
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
    return Bound(codegen_llvm.load(text), table.ctypes.data, 1).keeping(x, y, out, table)


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
    code = Code(fma=codegen_llvm.compiler().has_fma)
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
    text = code.function("body", "ptr noalias %x, ptr noalias %y, ptr noalias %out")
    caller = Code()
    words = [caller.let(f"getelementptr i64, ptr %table, i64 {i}") for i in range(3)]
    names = [caller.let(f"load ptr, ptr {w}") for w in words]
    caller.do(f"call void @body({', '.join(f'ptr {n}' for n in names)})")
    work = caller.function("work", "ptr %table, i64 %first, i64 %last")
    return "\n".join([text, work]) + driver(1)
