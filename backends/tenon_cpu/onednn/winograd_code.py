"""Machine code for the linear maps of Winograd's convolution, over vectors of one block of channels.

A map transforms a square patch ``d`` of vectors to ``m d m'``. Patches are stored in a *grid*, an array in
blocks of channels of which each patch is a window (elements beyond the edge are zero, and not written), or as
*points*: each vector of a patch in a different matrix, ``[point, tile, channel]`` with any two strides.

``text`` generates a module for ``jit/compiler/llvm.py``: sizes come from a table at run time, so that one
module works for all shapes. ``TABLE`` lists the words of the table.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from fractions import Fraction

from tenon_cpu.jit.compiler.llvm import driver

Matrix = tuple[tuple[float, ...], ...]

#: Words of a table. Strides are in floats: ``point`` and ``tile`` of the points, ``from_`` those of the
#: source where both sides are points. A grid has ``blocks`` of channels of ``height`` by ``width``.
TABLE = (
    "count", "source", "target", "point", "tile", "from_point", "from_tile", "blocks",
    "height", "width", "down", "across", "top", "left", "flag",
    "bias", "bias_step", "scale", "scale_step", "shift", "shift_step", "added",
)  # fmt: skip

#: Outputs and inputs of a tile along an axis, and the points at which its polynomials are evaluated, besides
#: infinity. Of the points that are sums of few powers of two these have the smallest error: 5 times the
#: rounding of a float32 sum, against 11 times for 0, 1, -1, 2, -2.
STEP, REACH, WINDOW = 4, 6, 3
_POINTS = tuple(Fraction(n, 4) for n in (0, 3, -3, 6, -6))


def _product(roots: Sequence[Fraction]) -> list[Fraction]:
    """Return the coefficients of the polynomial with these roots, lowest degree first."""
    coefficients = [Fraction(1)]
    for root in roots:
        coefficients = [
            a - root * b
            for a, b in zip([Fraction(0), *coefficients], [*coefficients, Fraction(0)], strict=True)
        ]
    return coefficients


@functools.cache
def matrices() -> dict[str, Matrix]:
    """Return ``input``, ``weight`` and ``output`` with ``y = output ((weight w) * (input x))``, and the
    matrices of gradients: ``flipped`` for the weight of the input's gradient, and transposes."""
    rows_in, rows_weight = [], []
    for p in _POINTS:
        others = [q for q in _POINTS if q != p]
        scale = Fraction(1)
        for q in others:
            scale *= p - q
        rows_weight.append([p**i / scale for i in range(WINDOW)])
        rows_in.append([*_product(others), Fraction(0)])
    rows_weight.append([Fraction(0)] * (WINDOW - 1) + [Fraction(1)])
    rows_in.append(_product(_POINTS))
    rows_out = [[*(p**i for p in _POINTS), Fraction(i == STEP - 1)] for i in range(STEP)]

    def floats(rows: Sequence[Sequence[Fraction]]) -> Matrix:
        return tuple(tuple(map(float, row)) for row in rows)

    return {
        "input": floats(rows_in),
        "weight": floats(rows_weight),
        "flipped": floats([row[::-1] for row in rows_weight]),
        "output": floats(rows_out),
        "gradient": floats(list(zip(*rows_out, strict=True))),
        "weight_grad": floats(list(zip(*rows_weight, strict=True))),
    }


class _Code:
    """Lines of LLVM IR, with fresh names."""

    def __init__(self, block: int) -> None:
        self.lines: list[str] = []
        self.vector, self.block, self._count = f"<{block} x float>", block, 0

    def name(self) -> str:
        self._count += 1
        return f"%v{self._count}"

    def add(self, text: str) -> str:
        """Emit ``name = text`` with a fresh name and return the name."""
        name = self.name()
        self.lines.append(f"  {name} = {text}")
        return name

    def constant(self, number: float) -> str:
        """Return a vector constant whose elements are ``number``."""
        single = struct.unpack("f", struct.pack("f", number))[0]
        bits = struct.unpack("<Q", struct.pack("<d", single))[0]  # LLVM writes floats as doubles
        return f"<{', '.join([f'float 0x{bits:016X}'] * self.block)}>"

    def combined(self, terms: Sequence[tuple[float, str]]) -> str:
        """Emit the sum of products ``k * x``."""
        nonzero = [(k, x) for k, x in terms if k]
        if not nonzero:
            return "zeroinitializer"
        nonzero.sort(key=lambda term: term[0] != 1.0)
        (k, total), *others = nonzero
        if k == -1.0:
            total = self.add(f"fneg {self.vector} {total}")
        elif k != 1.0:
            total = self.add(f"fmul {self.vector} {total}, {self.constant(k)}")
        for k, x in others:
            if k in (1.0, -1.0):
                total = self.add(f"{'fadd' if k > 0 else 'fsub'} {self.vector} {total}, {x}")
            else:
                v = self.vector
                total = self.add(
                    f"call {v} @llvm.fmuladd.v{self.block}f32({v} {x}, {v} {self.constant(k)}, {v} {total})"
                )
        return total

    def mapped(self, matrix: Matrix, xs: Sequence[str]) -> list[str]:
        """Emit ``matrix`` times ``xs``; pairs of rows or columns that differ in signs only share their
        computation."""
        pairs = [j for j in range(1, len(xs) - 1, 2) if all(abs(r[j]) == abs(r[j + 1]) for r in matrix)]
        if pairs and len(xs) > len(matrix):
            return self._by_columns(matrix, xs, pairs)
        results: list[str] = []
        while len(results) < len(matrix):
            one, other = matrix[len(results)], matrix[min(len(results) + 1, len(matrix) - 1)]
            if one is other or any(abs(a) != abs(b) for a, b in zip(one, other, strict=True)):
                results.append(self.combined(list(zip(one, xs, strict=True))))
                continue
            nonzero = [(a, b, x) for a, b, x in zip(one, other, xs, strict=True) if a]
            same = self.combined([(a, x) for a, b, x in nonzero if a == b])
            opposite = self.combined([(a, x) for a, b, x in nonzero if a != b])
            results.append(self.add(f"fadd {self.vector} {same}, {opposite}"))
            results.append(self.add(f"fsub {self.vector} {same}, {opposite}"))
        return results

    def _by_columns(self, matrix: Matrix, xs: Sequence[str], pairs: Sequence[int]) -> list[str]:
        sums = {j: self.add(f"fadd {self.vector} {xs[j]}, {xs[j + 1]}") for j in pairs}
        differences = {j: self.add(f"fsub {self.vector} {xs[j]}, {xs[j + 1]}") for j in pairs}
        results = []
        for row in matrix:
            terms = [
                (row[j], sums[j] if row[j] == row[j + 1] else differences[j])
                if j in sums
                else (row[j], xs[j])
                for j in range(len(xs))
                if j - 1 not in sums
            ]
            results.append(self.combined(terms))
        return results


@functools.cache
def text(matrix: str, source: str, target: str, block: int) -> str:
    """Return the module that maps patches from ``source`` to ``target``, each "grid" or "points".

    The values written to a grid are ``(result + bias) * scale + shift``; the target "sum" adds another grid.
    """
    numbers = matrices()[matrix]
    rows, reach = len(numbers), len(numbers[0])
    code = _Code(block)
    code.lines.append("entry:")
    vector, bytes_ = code.vector, block * 4
    for index, word in enumerate(TABLE):
        code.lines.append(f"  %at_{word} = getelementptr i64, ptr %table, i64 {index}")
        code.lines.append(f"  %{word} = load i64, ptr %at_{word}")
    for word in ("source", "target", "flag", "bias", "scale", "shift", "added"):
        code.lines.append(f"  %to_{word} = inttoptr i64 %{word} to ptr")
    code.lines += [
        f"  %nothing = alloca {vector}, align {bytes_}",
        f"  %sink = alloca {vector}, align {bytes_}",
        f"  %seen = alloca {vector}, align {bytes_}",
        f"  store {vector} zeroinitializer, ptr %nothing",
        f"  store {vector} zeroinitializer, ptr %seen",
        "  %plane_words = mul i64 %height, %width",
        f"  %plane = mul i64 %plane_words, {block}",
        "  %image = mul i64 %plane, %blocks",
        "  %any = icmp slt i64 %first, %last",
        "  br i1 %any, label %pieces, label %done",
        "pieces:",
        "  %piece = phi i64 [%first, %entry], [%piece_next, %piece_end]",
    ]
    grid = source == "grid" or target != "points"
    size = reach if source == "grid" else rows
    if grid:
        code.lines += ["  %n = sdiv i64 %piece, %down", "  %row = srem i64 %piece, %down"]
        code.lines += ["  %image_at = mul i64 %n, %image"]
        _edges(code, "row", "height", "top", size)
    code.lines += [
        "  br label %tiles",
        "tiles:",
        "  %column = phi i64 [0, %pieces], [%column_next, %tile_end]",
    ]
    if grid:
        _edges(code, "column", "width", "left", size)
    code.lines += [
        "  %before = mul i64 %piece, %across",
        "  %place = add i64 %before, %column",
        "  br label %vectors",
        "vectors:",
        "  %b = phi i64 [0, %tiles], [%b_next, %vectors]",
        f"  %channel = mul i64 %b, {block}",
    ]
    patch = _loaded(code, source, target, reach)
    columns = [code.mapped(numbers, [patch[i][j] for i in range(reach)]) for j in range(reach)]
    results = [code.mapped(numbers, [columns[j][i] for j in range(reach)]) for i in range(rows)]
    _stored(code, source, target, results)
    code.lines += [
        "  %b_next = add i64 %b, 1",
        "  %b_more = icmp slt i64 %b_next, %blocks",
        "  br i1 %b_more, label %vectors, label %tile_end",
        "tile_end:",
        "  %column_next = add i64 %column, 1",
        "  %column_more = icmp slt i64 %column_next, %across",
        "  br i1 %column_more, label %tiles, label %piece_end",
        "piece_end:",
        "  %piece_next = add i64 %piece, 1",
        "  %piece_more = icmp slt i64 %piece_next, %last",
        "  br i1 %piece_more, label %pieces, label %end",
        "end:",
        f"  %noted = load {vector}, ptr %seen",
        f"  %odd = fcmp uno {vector} %noted, zeroinitializer",
        f"  %bits = bitcast <{block} x i1> %odd to i{block}",
        f"  %wrong = icmp ne i{block} %bits, 0",
        "  br i1 %wrong, label %note, label %done",
        "note:",
        "  store i64 1, ptr %to_flag",
        "  br label %done",
        "done:",
        "  ret void",
    ]
    body = "\n".join(code.lines)
    return (
        f"define void @work(ptr noalias %table, i64 %first, i64 %last) {{\n{body}\n}}\n"
        f"declare {vector} @llvm.fmuladd.v{block}f32({vector}, {vector}, {vector})\n{driver(None)}"
    )


def _edges(code: _Code, axis: str, limit: str, before: str, size: int) -> None:
    """Emit ``%<axis><i>``, the offset in floats of each row (or column) of a patch, and ``%<axis>_in<i>``,
    whether it is inside the array."""
    step = code.add(f"mul i64 %{axis}, {STEP}")
    start = code.add(f"sub i64 {step}, %{before}")
    for i in range(size):
        at = code.add(f"add i64 {start}, {i}")
        code.lines.append(f"  %{axis}_in{i} = icmp ult i64 {at}, %{limit}")
        if axis == "row":
            at = code.add(f"mul i64 {at}, %width")
        code.lines.append(f"  %{axis}{i} = mul i64 {at}, {code.block}")


def _grid(code: _Code, base: str, i: int, j: int, other: str) -> str:
    """Emit the address of a vector of a grid, or that of ``other`` beyond the edge."""
    offset = code.add(f"add i64 %row{i}, %column{j}")
    address = code.add(f"getelementptr float, ptr {base}, i64 {offset}")
    inside = code.add(f"and i1 %row_in{i}, %column_in{j}")
    return code.add(f"select i1 {inside}, ptr {address}, ptr {other}")


def _plane(code: _Code, base: str) -> str:
    plane = code.add("mul i64 %b, %plane")
    offset = code.add(f"add i64 {plane}, %image_at")
    return code.add(f"getelementptr float, ptr {base}, i64 {offset}")


def _points(code: _Code, base: str, count: int, prefix: str) -> list[str]:
    """Emit the addresses of a tile's vectors."""
    tile = code.add(f"mul i64 %place, %{prefix}tile")
    offset = code.add(f"add i64 {tile}, %channel")
    addresses = [code.add(f"getelementptr float, ptr {base}, i64 {offset}")]
    for _ in range(count - 1):
        addresses.append(code.add(f"getelementptr float, ptr {addresses[-1]}, i64 %{prefix}point"))
    return addresses


def _loaded(code: _Code, source: str, target: str, reach: int) -> list[list[str]]:
    if source == "grid":
        base = _plane(code, "%to_source")
        addresses = [[_grid(code, base, i, j, "%nothing") for j in range(reach)] for i in range(reach)]
    else:
        prefix = "from_" if target == "points" else ""
        flat = _points(code, "%to_source", reach * reach, prefix)
        addresses = [flat[i * reach : (i + 1) * reach] for i in range(reach)]
    return [[code.add(f"load {code.vector}, ptr {at}, align 4") for at in line] for line in addresses]


def _channelwise(code: _Code, word: str) -> str:
    """Emit the load of a vector of the current channels."""
    step = code.add(f"mul i64 %b, %{word}_step")
    at = code.add(f"getelementptr float, ptr %to_{word}, i64 {step}")
    return code.add(f"load {code.vector}, ptr {at}, align 4")


def _stored(code: _Code, source: str, target: str, results: list[list[str]]) -> None:
    """Emit the stores of a patch; one that is not finite leaves NaN in ``%seen``."""
    vector, rows = code.vector, len(results)
    if target != "points":
        bias, scale, shift = (_channelwise(code, word) for word in ("bias", "scale", "shift"))
        base = _plane(code, "%to_target")
        other = _plane(code, "%to_added") if target == "sum" else None
        for i in range(rows):
            for j in range(rows):
                value = code.add(f"fadd {vector} {results[i][j]}, {bias}")
                value = code.add(
                    f"call {vector} @llvm.fmuladd.v{code.block}f32("
                    f"{vector} {value}, {vector} {scale}, {vector} {shift})"
                )
                if other is not None:
                    at = _grid(code, other, i, j, "%nothing")
                    added_value = code.add(f"load {vector}, ptr {at}, align 4")
                    value = code.add(f"fadd {vector} {value}, {added_value}")
                code.lines.append(
                    f"  store {vector} {value}, ptr {_grid(code, base, i, j, '%sink')}, align 4"
                )
    else:
        flat = [value for line in results for value in line]
        for value, at in zip(flat, _points(code, "%to_target", rows * rows, ""), strict=True):
            code.lines.append(f"  store {vector} {value}, ptr {at}, align 4")
    if rows < REACH:
        total = results[0][0]
        for value in [v for line in results for v in line][1:]:
            total = code.add(f"fadd {vector} {total}, {value}")
        before = code.add(f"load {vector}, ptr %seen")
        noted = code.add(f"fmul {vector} {total}, zeroinitializer")
        after = code.add(f"fadd {vector} {before}, {noted}")
        code.lines.append(f"  store {vector} {after}, ptr %seen")
