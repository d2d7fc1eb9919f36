"""Max pooling by windows of 2 by 2 with stride 2, and its gradient, over arrays in blocks of channels.

A block of channels is a vector, so that a window is four vectors. oneDNN's maximum drops NaN, so its arrays
would have to be searched for NaN, and its gradient repeats the forward pass to fill the workspace. The
machine code generated here reads each array once. It reads one line after the other: reading two lines at
once defeats the processor's prefetcher and takes 2.6 times as long.

``x`` in blocks is ``[N, C / b, H, W, b]``. A task of the thread pool is one pair of its lines, of any plane.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from tenon.extend import Attrs, Thunk
from tenon_cpu.jit.compiler import llvm
from tenon_cpu.jit.emission.functions import Code
from tenon_cpu.jit.fusion import chains
from tenon_cpu.onednn.layouts import Layout
from tenon_cpu.onednn.primitives import address_of


def takes(x: np.ndarray, y: np.ndarray, attrs: Attrs, *layouts: Layout) -> bool:
    """Whether all layouts are blocked and windows of 2 by 2 with stride 2 cover ``x`` exactly."""
    quarters = attrs["kernel"] == attrs["stride"] == (2, 2) and not any(attrs["padding"])
    halved = y.ndim == 4 and x.shape == (*y.shape[:2], 2 * y.shape[2], 2 * y.shape[3])
    return quarters and halved and all(layout.block for layout in layouts) and llvm.available()


def max_pool(x: np.ndarray, out: np.ndarray, block: int) -> Thunk:
    """Return a function that writes the maximum of each window to ``out``; NaN propagates."""
    return _bound(_forward(block), block, x, out)


def max_pool_grad(g: np.ndarray, x: np.ndarray, out: np.ndarray, dx: np.ndarray, block: int) -> Thunk:
    """Return a function that writes ``g`` to ``dx`` at the first maximum of each window, or at its last NaN,
    and 0 elsewhere. ``dx`` may share the memory of ``x``."""
    return _bound(_backward(block), block, x, out, g, dx)


def _bound(text: str, block: int, x: np.ndarray, y: np.ndarray, *others: np.ndarray) -> Thunk:
    across = y.shape[3]
    table = np.array([y.size // (across * block), across, *map(address_of, (x, y, *others))], np.int64)
    return chains.bound(llvm.load(text), table, llvm.ALL, x, y, *others)


class _Windows(Code):
    """LLVM code for loops over the windows of a line, whose elements are vectors."""

    def __init__(self, block: int) -> None:
        super().__init__()
        self.vector, self.mask = f"<{block} x float>", f"<{block} x i1>"
        words = [self.let(f"getelementptr i64, ptr %table, i64 {i}") for i in range(1, 6)]
        self.across = self.let(f"load i64, ptr {words[0]}")
        self.words = words[1:]

    def array(self, index: int) -> str:
        """Return the address of array ``index`` of the table, where 0 is ``x``."""
        return self.let(f"load ptr, ptr {self.words[index]}")

    @contextmanager
    def windows(self, line: str) -> Iterator[tuple[list[int | str], int | str]]:
        """Loop over windows: yield the offsets of its four vectors in ``x``, and its own offset in pooled
        arrays."""
        before = self.let(f"mul i64 {line}, {self.across}")
        wide = self.times(self.across, 2)
        with self.loop(0, self.across) as column:
            upper = self.plus(self.times(before, 4), self.times(column, 2))
            lower = self.plus(upper, wide)
            yield [upper, self.plus(upper, 1), lower, self.plus(lower, 1)], self.plus(before, column)

    def address(self, base: str, offset: int | str) -> str:
        """Return the address of the vector at ``offset``."""
        return self.let(f"getelementptr {self.vector}, ptr {base}, i64 {offset}")

    def get(self, base: str, offset: int | str) -> str:
        """Load the vector at ``offset``."""
        return self.let(f"load {self.vector}, ptr {self.address(base, offset)}, align 4")

    def put(self, value: str, base: str, offset: int | str) -> None:
        """Store the vector ``value`` at ``offset``."""
        self.do(f"store {self.vector} {value}, ptr {self.address(base, offset)}, align 4")

    def either(self, one: str, other: str) -> str:
        """Return the mask of elements for which at least one of two comparisons is true."""
        names = [self.let(f"fcmp {text}") for text in (one, other)]
        return self.let(f"or {self.mask} {names[0]}, {names[1]}")

    def choose(self, mask: str, one: str, other: str) -> str:
        """Select ``one`` where ``mask`` is true, else ``other``."""
        return self.let(f"select {self.mask} {mask}, {self.vector} {one}, {self.vector} {other}")

    def larger(self, a: str, b: str) -> str:
        """Return the elementwise maximum, NaN if ``a`` is NaN."""
        return self.choose(self.either(f"ogt {self.vector} {a}, {b}", f"uno {self.vector} {a}, {a}"), a, b)

    @contextmanager
    def rarely(self, mask: str, block: int) -> Iterator[None]:
        """Emit code that runs only if any element of ``mask`` is true."""
        self.loops += 1
        n = self.loops
        some = self.let(f"icmp ne i{block} {self.let(f'bitcast {self.mask} {mask} to i{block}')}, 0")
        self.do(f"br i1 {some}, label %rare{n}, label %usual{n}")
        self.label(f"rare{n}")
        yield
        self.do(f"br label %usual{n}")
        self.label(f"usual{n}")

    def module(self) -> str:
        """Return the text of the whole LLVM module."""
        return self.function("work", "ptr %table, i64 %first, i64 %last") + "\n" + llvm.driver(None)


@functools.cache
def _forward(block: int) -> str:
    code = _Windows(block)
    x, out = code.array(0), code.array(1)
    with code.loop("%first", "%last") as line:
        with code.windows(line) as (offsets, index):
            a, b = (code.get(x, at) for at in offsets[:2])
            code.put(code.larger(a, b), out, index)
        with code.windows(line) as (offsets, index):
            c, d = (code.get(x, at) for at in offsets[2:])
            code.put(code.larger(code.get(out, index), code.larger(c, d)), out, index)
    return code.module()


@functools.cache
def _backward(block: int) -> str:
    code = _Windows(block)
    x, out, g, dx = (code.array(index) for index in range(4))

    def spread(pair: list[int | str], index: int | str, remaining: str) -> None:
        maximum = code.get(out, index)
        one, other = (code.get(x, at) for at in pair)
        last = code.let(f"fcmp ord {code.vector} {other}, {other}")
        for v, at, free in ((one, pair[0], last), (other, pair[1], None)):
            chosen = code.either(f"oeq {code.vector} {v}, {maximum}", f"uno {code.vector} {v}, {v}")
            if free is not None:
                chosen = code.let(f"and {code.mask} {chosen}, {free}")
            code.put(code.choose(chosen, remaining, "zeroinitializer"), dx, at)
            remaining = code.choose(chosen, "zeroinitializer", remaining)

    with code.loop("%first", "%last") as line:
        with code.windows(line) as (offsets, index):
            spread(offsets[:2], index, code.get(g, index))
        with code.windows(line) as (offsets, index):
            a, b = (f"une {code.vector} {code.get(dx, at)}, zeroinitializer" for at in offsets[:2])
            gradient = code.get(g, index)
            remaining = code.choose(code.either(a, b), "zeroinitializer", gradient)
            c, d = (code.get(x, at) for at in offsets[2:])
            unordered = code.let(f"fcmp uno {code.vector} {c}, {d}")
            with code.rarely(unordered, block):
                for at in offsets[:2]:
                    code.put(code.choose(unordered, "zeroinitializer", code.get(dx, at)), dx, at)
            spread(offsets[2:], index, code.choose(unordered, gradient, remaining))
    return code.module()
