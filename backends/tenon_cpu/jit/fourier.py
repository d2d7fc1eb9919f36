"""Emit Fourier transforms of float32 whose size is a power of two, of sixteen vectors ("lines") at a time.

The elements of sixteen lines are interleaved, so that a step operates on whole vectors with one factor for
all. Lines that are rows are transposed when loaded and stored, 16 x 16 numbers at a time; columns are
interleaved already. The algorithm is Stockham's of radix 8: lines are read from one buffer and written to
another and back, and need no reordering at the end. Half spectra of real lines are transforms of half the
size over pairs of numbers.

``eager_ops/fourier.py`` has the conditions for calls.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable

import numpy as np

from tenon_cpu.jit.compiler import llvm
from tenon_cpu.jit.compiler.llvm import driver
from tenon_cpu.jit.emission.functions import Code, Index, reading

#: A complex number of all lines: the names of the vectors of real and imaginary parts.
_Complex = tuple[str, str]
#: Lines that are computed together, one in each lane of a vector, and the floats of one element of all of
#: them: real parts, then imaginary parts.
LANES, _ELEMENT = 16, 32
_V = f"<{LANES} x float>"
_MASK = f"<{LANES} x i32>"
#: The transforms: complex to complex, real to half a spectrum, and half a spectrum to real.
COMPLEX, HALF, REAL = "complex", "half", "real"
_WORDS = ("source", "target", "factors", "turns", "source_step", "target_step", "lines", "inner", "scale")


def radices(size: int) -> list[int]:
    """The radices of the steps of a transform: eights, then the factor that is left."""
    eights = []
    while size % 8 == 0:
        eights.append(8)
        size //= 8
    return [*eights, size] if size > 1 else eights


@functools.cache
def factors(size: int) -> np.ndarray:
    """The twiddle factors of all steps but the last: ``exp(-2 pi i p j / n)``, p from 0, j from 1."""
    parts, n = [], size
    for r in radices(size)[:-1]:
        angles = np.outer(np.arange(n // r), np.arange(1, r)) * (-2 * math.pi / n)
        parts.append(np.stack([np.cos(angles), np.sin(angles)], -1).reshape(-1))
        n //= r
    return np.concatenate([np.zeros(0), *parts]).astype(np.float32)


@functools.cache
def half_spectrum_factors(half: int) -> np.ndarray:
    """The factors ``exp(-2 pi i k / n)`` for the first half of the frequencies, ``half`` in number."""
    angles = np.arange(half) * (-math.pi / half)
    return np.stack([np.cos(angles), np.sin(angles)], -1).reshape(-1).astype(np.float32)


class _Lines(Code):
    """Code over vectors of lines."""

    def vector(self, pointer: str, index: Index) -> str:
        return self.let(f"load {_V}, ptr {self._at(pointer, index)}, align 4")

    def keep(self, value: str, pointer: str, index: Index) -> None:
        self.do(f"store {_V} {value}, ptr {self._at(pointer, index)}, align 4")

    def _at(self, pointer: str, index: Index) -> str:
        return self.let(f"getelementptr float, ptr {pointer}, i64 {index}")

    def number(self, pointer: str, index: Index) -> str:
        """Load one number for all lines."""
        return self.everywhere(self.let(f"load float, ptr {self._at(pointer, index)}, align 4"))

    def everywhere(self, value: str) -> str:
        one = self.let(f"insertelement {_V} poison, float {value}, i32 0")
        return self.let(f"shufflevector {_V} {one}, {_V} poison, {_MASK} zeroinitializer")

    def sum(self, a: str, b: str) -> str:
        return self.let(f"fadd contract {_V} {a}, {b}")

    def less(self, a: str, b: str) -> str:
        return self.let(f"fsub contract {_V} {a}, {b}")

    def product(self, a: str, b: str) -> str:
        return self.let(f"fmul contract {_V} {a}, {b}")

    def chosen(self, a: str, b: str, lanes: Iterable[int]) -> str:
        """A vector of the given lanes of ``a`` (0 to 15) and ``b`` (16 to 31)."""
        mask = ", ".join(f"i32 {k}" for k in lanes)
        return self.let(f"shufflevector {_V} {a}, {_V} {b}, {_MASK} <{mask}>")

    def add(self, a: _Complex, b: _Complex) -> _Complex:
        return self.sum(a[0], b[0]), self.sum(a[1], b[1])

    def sub(self, a: _Complex, b: _Complex) -> _Complex:
        return self.less(a[0], b[0]), self.less(a[1], b[1])

    def mul(self, a: _Complex, b: _Complex) -> _Complex:
        real = self.less(self.product(a[0], b[0]), self.product(a[1], b[1]))
        return real, self.sum(self.product(a[0], b[1]), self.product(a[1], b[0]))

    def scaled(self, a: _Complex, by: str) -> _Complex:
        return self.product(a[0], by), self.product(a[1], by)

    def element(self, buffer: str, index: Index) -> _Complex:
        """Load an element of all lines."""
        at = self.times(index, _ELEMENT)
        return self.vector(buffer, at), self.vector(buffer, self.plus(at, LANES))

    def put(self, value: _Complex, buffer: str, index: Index) -> None:
        """Store an element of all lines."""
        at = self.times(index, _ELEMENT)
        self.keep(value[0], buffer, at)
        self.keep(value[1], buffer, self.plus(at, LANES))

    def transposed(self, rows: list[str]) -> list[str]:
        """Transpose sixteen vectors: exchange blocks of half their size, then of a quarter, and so on."""
        d = LANES // 2
        while d:
            for i in (i for i in range(LANES) if not i & d):
                a, b = rows[i], rows[i + d]
                rows[i] = self.chosen(a, b, [k if not k & d else k - d + LANES for k in range(LANES)])
                rows[i + d] = self.chosen(a, b, [k + d if not k & d else k + LANES for k in range(LANES)])
            d //= 2
        return rows

    def transform(self, x: list[_Complex]) -> list[_Complex]:
        """The transform of two, four or eight numbers."""
        if len(x) == 2:
            return [self.add(*x), self.sub(*x)]
        even, odd = self.transform(x[::2]), self.transform(x[1::2])
        half = len(x) // 2
        for k in range(1, half):
            (a, b), eighth = odd[k], 8 * k // len(x)
            if eighth == 2:  # times -i
                odd[k] = (b, self.less(_ZEROS, a))
            else:  # times (1 - i) / sqrt(2), or (-1 - i) / sqrt(2)
                both, gap = self.sum(a, b), self.less(b, a)
                odd[k] = (
                    (self.product(both, _ROOT), self.product(gap, _ROOT))
                    if eighth == 1
                    else (self.product(gap, _ROOT), self.product(both, _MINUS_ROOT))
                )
        lower = [self.add(a, b) for a, b in zip(even, odd, strict=True)]
        return lower + [self.sub(a, b) for a, b in zip(even, odd, strict=True)]


def _all(value: float) -> str:
    """A vector constant with ``value`` in all lanes."""
    text = f"float 0x{np.float64(np.float32(value)).view(np.uint64):016X}"
    return "<" + ", ".join([text] * LANES) + ">"


_ZEROS, _ONES, _HALVES = _all(0.0), _all(1.0), _all(0.5)
_ROOT, _MINUS_ROOT = _all(math.sqrt(0.5)), _all(-math.sqrt(0.5))


def _steps(code: _Lines, size: int, a: str, b: str) -> str:
    """Emit Stockham's steps from buffer ``a`` to ``b`` and back; return the buffer with the result."""
    n, s, offset = size, 1, 0
    for r in radices(size):
        m = n // r
        with code.loop(0, m) as p:
            ws = []
            if m > 1:
                start = code.plus(code.times(p, 2 * (r - 1)), offset)
                for j in range(r - 1):
                    at = code.plus(start, 2 * j)
                    ws.append((code.number("%factors", at), code.number("%factors", code.plus(at, 1))))
            low, high = code.times(p, s), code.times(p, s * r)
            with code.loop(0, s) as q:
                first, to = code.plus(low, q), code.plus(high, q)
                values = code.transform([code.element(a, code.plus(first, s * m * k)) for k in range(r)])
                for j, value in enumerate(values):
                    code.put(code.mul(value, ws[j - 1]) if ws and j else value, b, code.plus(to, s * j))
        offset += 2 * m * (r - 1) if m > 1 else 0
        n, s, a, b = m, s * r, b, a
    return a


def _rows_in(code: _Lines, numbers: int, buffer: str) -> None:
    """Load sixteen rows of ``numbers`` floats and store them interleaved."""
    with code.loop(0, numbers // LANES) as t:
        at = code.times(t, LANES)
        rows = [
            code.vector("%from", code.plus(code.let(f"mul i64 %source_step, {r}"), at)) for r in range(LANES)
        ]
        for k, column in enumerate(code.transposed(rows)):
            code.keep(column, buffer, code.plus(code.times(t, LANES * LANES), LANES * k))
    for k in range(numbers // LANES * LANES, numbers):
        column = "poison"
        for r in range(LANES):
            at = code.plus(code.let(f"mul i64 %source_step, {r}"), k)
            one = code.let(f"load float, ptr {code._at('%from', at)}, align 4")
            column = code.let(f"insertelement {_V} {column}, float {one}, i32 {r}")
        code.keep(column, buffer, LANES * k)


def _rows_out(code: _Lines, numbers: int, buffer: str) -> None:
    """Store the elements as sixteen rows, times the scale."""
    with code.loop(0, numbers // LANES) as t:
        begin = code.times(t, LANES * LANES)
        columns = [code.vector(buffer, code.plus(begin, LANES * k)) for k in range(LANES)]
        for r, row in enumerate(code.transposed(columns)):
            at = code.plus(code.let(f"mul i64 %target_step, {r}"), code.times(t, LANES))
            code.keep(code.product(row, "%scales"), "%to", at)
    for k in range(numbers // LANES * LANES, numbers):
        column = code.product(code.vector(buffer, LANES * k), "%scales")
        for r in range(LANES):
            one = code.let(f"extractelement {_V} {column}, i32 {r}")
            at = code.plus(code.let(f"mul i64 %target_step, {r}"), k)
            code.do(f"store float {one}, ptr {code._at('%to', at)}, align 4")


def _columns_in(code: _Lines, size: int, buffer: str) -> None:
    """Load sixteen columns of complex numbers and store real and imaginary parts apart."""
    with code.loop(0, size) as k:
        at = code.let(f"mul i64 %source_step, {k}")
        a, b = code.vector("%from", at), code.vector("%from", code.plus(at, LANES))
        code.put((code.chosen(a, b, range(0, 32, 2)), code.chosen(a, b, range(1, 32, 2))), buffer, k)


def _columns_out(code: _Lines, size: int, buffer: str) -> None:
    """Store the elements as sixteen columns of complex numbers, times the scale."""
    pairs = [k for j in range(LANES) for k in (j, j + LANES)]
    with code.loop(0, size) as k:
        a, b = code.scaled(code.element(buffer, k), "%scales")
        at = code.let(f"mul i64 %target_step, {k}")
        code.keep(code.chosen(a, b, pairs[:LANES]), "%to", at)
        code.keep(code.chosen(a, b, pairs[LANES:]), "%to", code.plus(at, LANES))


def _exchanged(code: _Lines, size: int, buffer: str) -> None:
    """Exchange real and imaginary parts: a transform between two exchanges is the inverse one."""
    with code.loop(0, size) as k:
        a, b = code.element(buffer, k)
        code.put((b, a), buffer, k)


def _load_factor(code: _Lines, k: Index) -> _Complex:
    """Load the factor of frequency ``k``."""
    at = code.times(k, 2)
    return code.number("%turns", at), code.number("%turns", code.plus(at, 1))


# With Z of half the size h over pairs: X[k] = ((Z[k] + Z*[h-k]) - i w^k (Z[k] - Z*[h-k])) / 2
def _split_spectrum(code: _Lines, half: int, a: str, b: str) -> None:
    """Compute the half spectrum in ``b`` from the transform of pairs in ``a``."""
    x, y = code.element(a, 0)
    code.put((code.sum(x, y), _ZEROS), b, 0)
    code.put((code.less(x, y), _ZEROS), b, half)
    with code.loop(1, half) as k:
        one, other = code.element(a, k), code.element(a, code.let(f"sub i64 {half}, {k}"))
        even = (code.sum(one[0], other[0]), code.less(one[1], other[1]))
        odd = (code.less(one[0], other[0]), code.sum(one[1], other[1]))
        x, y = code.mul(odd, _load_factor(code, k))
        both = (code.sum(even[0], y), code.less(even[1], x))
        code.put(code.scaled(both, _HALVES), b, k)


# The inverse: Z[k] = (X[k] + X*[h-k]) + i w^-k (X[k] - X*[h-k])
def _merge_spectrum(code: _Lines, half: int, a: str, b: str) -> None:
    """Compute the transform of pairs in ``b``, parts exchanged, from the half spectrum in ``a``."""
    first, last = code.element(a, 0)[0], code.element(a, half)[0]
    code.put((code.less(first, last), code.sum(first, last)), b, 0)
    with code.loop(1, half) as k:
        one, other = code.element(a, k), code.element(a, code.let(f"sub i64 {half}, {k}"))
        even = (code.sum(one[0], other[0]), code.less(one[1], other[1]))
        c, s = _load_factor(code, k)
        odd = (code.less(one[0], other[0]), code.sum(one[1], other[1]))
        x, y = code.mul(odd, (c, code.less(_ZEROS, s)))
        code.put((code.sum(even[1], x), code.less(even[0], y)), b, k)


@functools.cache
def kernel(kind: str, size: int, inverse: bool, columns: bool) -> llvm.Entry:
    """The entry for lines of ``size`` numbers; its table has the number of blocks, then ``_WORDS``."""
    code = _Lines()
    n = size if kind == COMPLEX else size // 2
    code.entry += [f"  %{name} = alloca [{(n + 1) * _ELEMENT} x float], align 64" for name in ("a", "b")]
    code.entry += [
        f"  %one = insertelement {_V} poison, float %scale, i32 0",
        f"  %scales = shufflevector {_V} %one, {_V} poison, {_MASK} zeroinitializer",
    ]
    with code.loop("%first", "%last") as block:
        begin: Index = code.let(f"mul i64 {block}, {LANES}")
        if columns:  # the blocks of columns of each matrix in turn
            blocks = code.let(f"sdiv i64 {code.let(f'add i64 %inner, {LANES - 1}')}, {LANES}")
            matrix, own = code.let(f"sdiv i64 {block}, {blocks}"), code.let(f"srem i64 {block}, {blocks}")
            begin = code.least(code.let(f"mul i64 {own}, {LANES}"), code.let(f"sub i64 %inner, {LANES}"))
            offset = code.let(f"mul i64 {matrix}, {size}")
            offset = code.let(f"add i64 {code.let(f'mul i64 {offset}, %inner')}, {begin}")
            offset = code.let(f"mul i64 {offset}, 2")
            starts = [offset, offset]
        else:
            begin = code.least(begin, code.let(f"sub i64 %lines, {LANES}"))
            starts = [code.let(f"mul i64 {begin}, %{side}_step") for side in ("source", "target")]
        for name, side, at in zip(("from", "to"), ("source", "target"), starts, strict=True):
            code.do(f"%{name} = getelementptr float, ptr %{side}, i64 {at}")
        _body(code, kind, n, inverse, columns)
    return llvm.load(_module(code))


def _body(code: _Lines, kind: str, n: int, inverse: bool, columns: bool) -> None:
    """Emit the transform of one block of lines."""
    if kind == REAL:
        _rows_in(code, 2 * n + 2, "%a")
        _merge_spectrum(code, n, "%a", "%b")
        result = _steps(code, n, "%b", "%a")
    else:
        (_columns_in if columns else _rows_in)(code, n if columns else 2 * n, "%a")
        if inverse:
            _exchanged(code, n, "%a")
        result = _steps(code, n, "%a", "%b")
    if kind == HALF:
        other = "%b" if result == "%a" else "%a"
        _split_spectrum(code, n, result, other)
        _rows_out(code, 2 * n + 2, other)
        return
    if inverse:
        _exchanged(code, n, result)
    (_columns_out if columns else _rows_out)(code, n if columns else 2 * n, result)


def _module(code: _Lines) -> str:
    """The text of ``code`` as a function, and of the one that reads its arguments from the table."""
    kinds = ["ptr"] * 4 + ["i64"] * 4 + ["float"]
    names = ", ".join(
        f"{kind}{' noalias' if kind == 'ptr' else ''} %{name}"
        for kind, name in zip(kinds, _WORDS, strict=True)
    )
    body = code.function("body", f"{names}, i64 %first, i64 %last")
    return "\n".join([body, reading("body", kinds, 1), driver(None)])
