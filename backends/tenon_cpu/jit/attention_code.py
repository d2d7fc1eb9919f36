"""Emit the LLVM text of attention: one head, a block of queries at a time, whose scores stay in the cache.

A piece of work is one head of one sample. Keys are transposed into panels (``[columns / 32][width][32]``),
values are copied into such panels as well, and a block of queries passes through product, softmax and
product; its gradient through five products, for which the weights are recomputed from the maximum of each
row (``peak``) and the reciprocal of its sum (``share``). Keys that a causal block cannot see are left out.
Tiles of a product stay in registers: eight rows of two vectors.

Numbers that are not finite set ``flag`` to 1: the caller then computes by separate ops, whose products
propagate NaN and infinity as they should.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from tenon_cpu.jit.attention_vectors import Vectors, declarations, product
from tenon_cpu.jit.compiler.llvm import driver
from tenon_cpu.jit.emission.functions import Index

#: Queries of a block.
BLOCK = 16
#: The words of a call's table: addresses, sizes, and strides in elements along batch, head and row.
ARRAYS = ("query", "key", "value", "bias", "out", "g", "dquery", "dkey", "dvalue")
WORDS = (
    "count", "flag", "heads", "queries", "keys", "scale", "peak", "share",
    *ARRAYS, *(f"{name}_{axis}" for name in ARRAYS for axis in ("batch", "head", "row")),
)  # fmt: skip
#: Minus infinity in LLVM's notation.
_LOWEST = "0xFFF0000000000000"


def panels(width: int, lanes: int) -> list[tuple[int, int]]:
    """The first column and the number of vectors of each panel of ``width`` columns."""
    return [(at, min(2, (width - at) // lanes)) for at in range(0, width, 2 * lanes)]


class _Head(Vectors):
    """The function ``work``: attention of the heads ``first`` to ``last``."""

    def __init__(self, width: int, lanes: int, rows: int, causal: bool, biased: bool) -> None:
        super().__init__(lanes)
        self.width, self.rows, self.causal, self.biased = width, rows, causal, biased

    def prologue(self, scratch: Sequence[tuple[str, Index, Index]]) -> None:
        """Read the table and allocate temporary arrays: ``(name, factor, factor)`` for each, the size."""
        for index, word in enumerate(WORDS):
            at = self.let(f"getelementptr i64, ptr %table, i64 {index}")
            self.do(f"%{word}.word = load i64, ptr {at}")
            kind = word in (*ARRAYS, "flag", "peak", "share")
            self.do(f"%{word} = {'inttoptr i64' if kind else 'add i64 0,'} %{word}.word{' to ptr' * kind}")
        self.do("%scale.bits = trunc i64 %scale to i32")
        self.do("%factor = bitcast i32 %scale.bits to float")
        self.do(f"%seen = alloca {self.vector}, align 64")
        self.write("zeroinitializer", "%seen")
        wide = 2 * self.lanes
        up = self.let(f"add i64 %keys, {wide - 1}")
        self.do(f"%columns = and i64 {up}, {-wide}")
        self.do(f"%stride = add i64 %columns, {self.lanes}")
        offsets, total = [], "0"
        for _, a, b in scratch:
            offsets.append(total)
            size = self.let(f"mul i64 {a}, {b}")
            total = self.let(f"add i64 {total}, {size}")
        self.do(f"%bytes = shl i64 {total}, 2")
        self.do("%memory = call ptr @aligned_alloc(i64 64, i64 %bytes)")
        self.do("%none = icmp eq ptr %memory, null")
        self.do("br i1 %none, label %wrong, label %ready")
        self.label("ready")
        for (name, _, _), offset in zip(scratch, offsets, strict=True):
            self.do(f"%{name} = getelementptr float, ptr %memory, i64 {offset}")

    def head_addresses(self, piece: str, used: Sequence[str]) -> None:
        """Compute the addresses of the arrays of a head: ``%<name>.head``."""
        batch, head = self.let(f"sdiv i64 {piece}, %heads"), self.let(f"srem i64 {piece}, %heads")
        for name in used:
            at = self.address(f"%{name}", (batch, f"%{name}_batch"), (head, f"%{name}_head"))
            self.do(f"%{name}.head = getelementptr float, ptr {at}, i64 0")
        for name in ("peak", "share"):
            at = self.address(f"%{name}", (piece, "%queries"))
            self.do(f"%{name}.head = getelementptr float, ptr {at}, i64 0")

    def pack_transposed(self, name: str, target: str) -> None:
        """Copy the rows of ``name`` to columns of panels; the last row also fills the rest of its panel."""
        lanes, wide = self.lanes, 2 * self.lanes
        last = self.let("sub i64 %keys, 1")
        with self.loop(0, "%columns", lanes) as j:
            panel = self.let(f"and i64 {j}, {-wide}")
            inside = self.let(f"and i64 {j}, {lanes}")
            base = self.address(self.address(target, (panel, self.width)), (inside, 1))
            sources = []
            for i in range(lanes):
                row = self.least(self.let(f"add i64 {j}, {i}"), last)
                sources.append(self.address(f"%{name}.head", (row, f"%{name}_row")))
            with self.loop(0, self.width, lanes) as e:
                values = [self.read(self.address(at, (e, 1))) for at in sources]
                for value in values:
                    self.track_finite(value)
                for i, value in enumerate(self._transpose(values)):
                    row = self.let(f"add i64 {e}, {i}")
                    self.write(value, self.address(base, (row, wide)))

    def _transpose(self, values: list[str]) -> list[str]:
        """Transpose a square of vectors: exchange blocks of half their size, then of a quarter, and so on."""
        lanes, step = self.lanes, self.lanes // 2
        while step:
            exchanged = list(values)
            for i in range(lanes):
                if i & step:
                    continue
                low = [k if not k & step else lanes + k - step for k in range(lanes)]
                high = [k + step if not k & step else lanes + k for k in range(lanes)]
                for at, order in ((i, low), (i + step, high)):
                    mask = ", ".join(f"i32 {k}" for k in order)
                    exchanged[at] = self.let(
                        f"shufflevector {self.vector} {values[i]}, {self.vector} {values[i + step]},"
                        f" <{lanes} x i32> <{mask}>"
                    )
            values, step = exchanged, step // 2
        return values

    def pack(self, name: str, target: str) -> None:
        """Copy the rows of ``name`` to panels."""
        with self.loop(0, "%keys") as j:
            source = self.address(f"%{name}.head", (j, f"%{name}_row"))
            for at, vectors in panels(self.width, self.lanes):
                own = self.address(self.address(target, ("%columns", at)), (j, vectors * self.lanes))
                for w in range(vectors):
                    value = self.read(self.address(source, (at + w * self.lanes, 1)))
                    self.track_finite(value)
                    self.write(value, self.address(own, (w, self.lanes)))

    def block_bounds(self, start: str) -> None:
        """Compute ``%count.q``, the block's queries, ``%visible``, the keys that some of them see, and
        ``%limit``, these rounded up to whole panels."""
        rest = self.let(f"sub i64 %queries, {start}")
        self.do(f"%count.q = call i64 @llvm.smin.i64(i64 {rest}, i64 {BLOCK})")
        up = self.let(f"add i64 %count.q, {self.rows - 1}")
        self.do(f"%tiles = sdiv i64 {up}, {self.rows}")
        if self.causal:
            end = self.let(f"add i64 {start}, %count.q")
            self.do(f"%visible = call i64 @llvm.smin.i64(i64 {end}, i64 %keys)")
        else:
            self.do("%visible = add i64 %keys, 0")
        wide = 2 * self.lanes
        up = self.let(f"add i64 %visible, {wide - 1}")
        self.do(f"%limit = and i64 {up}, {-wide}")

    def copy_block(self, name: str, start: str, target: str, factor: str | None) -> None:
        """Copy the block's rows of ``name`` to ``target``, without gaps, times ``factor``."""
        wide = self.splat(factor) if factor else ""
        with self.loop(0, "%count.q") as r:
            row = self.let(f"add i64 {start}, {r}")
            source = self.address(f"%{name}.head", (row, f"%{name}_row"))
            own = self.address(target, (r, self.width))
            for at in range(0, self.width, self.lanes):
                value = self.read(self.address(source, (at, 1)))
                self.track_finite(value)
                if factor:
                    value = self.binary("fmul", value, wide)
                self.write(value, self.address(own, (at, 1)))

    def multiply_by_keys(self, queries: str, panels: str, target: str) -> None:
        """Multiply the block by the panels of all keys that it sees."""
        wide = 2 * self.lanes
        with self.loop(0, "%limit", wide) as j:
            b = self.address(panels, (j, self.width))
            self.multiply("scores", queries, b, self.address(target, (j, 1)), "%tiles", self.width)

    def multiply(self, name: str, a: str, b: str, c: str, tiles: Index, k: Index) -> None:
        """Call the product ``name``."""
        self.do(f"call void @{name}(ptr {a}, ptr {b}, ptr {c}, i64 {tiles}, i64 {k}, i64 %stride)")

    def mask_row(self, row: str, query: str) -> None:
        """Add the bias to a row of scores; set those that ``query`` may not see to minus infinity."""
        lanes, v = self.lanes, self.vector
        if self.biased:
            source = self.address("%bias.head", (query, "%bias_row"))
            with self.loop(0, "%keys", lanes) as j:
                at, own = self.address(source, (j, 1)), self.address(row, (j, 1))
                there = self.lane_mask(j, "%keys")
                more = self.let(
                    f"call {v} @llvm.masked.load.v{lanes}f32.p0(ptr {at}, i32 4, <{lanes} x i1> {there},"
                    f" {v} zeroinitializer)"
                )
                self.write(self.binary("fadd", self.read(own), more), own)
        end: Index = "%keys"
        if self.causal:
            end = self.least(self.let(f"add i64 {query}, 1"), "%keys")
        first = self.let(f"and i64 {end}, {-lanes}")
        lowest = self.splat(_LOWEST)
        with self.loop(first, "%limit", lanes) as j:
            own = self.address(row, (j, 1))
            seen = self.lane_mask(j, str(end))
            kept = self.let(f"select <{lanes} x i1> {seen}, {v} {self.read(own)}, {v} {lowest}")
            self.write(kept, own)

    def fold_row(self, name: str, start: str, step: Callable[[str, str], str]) -> str:
        """Fold the columns of a row: from ``start``, ``%name`` becomes ``step(%name, j)`` for each vector."""
        self.do(f"store {self.vector} {start}, ptr %{name}, align 64")
        with self.loop(0, "%limit", self.lanes) as j:
            self.write(step(self.read(f"%{name}"), j), f"%{name}")
        return self.read(f"%{name}")

    def exponentials(self, row: str, query: str) -> None:
        """Replace a row of scores by ``exp(score - peak)``; store the peak and the sum's reciprocal."""
        lanes, v = self.lanes, self.vector

        def larger(old: str, j: str) -> str:
            return self.let(
                f"call {v} @llvm.maxnum.v{lanes}f32({v} {old}, {v} {self.read(self.address(row, (j, 1)))})"
            )

        most = self.fold_row("best", self.constant_of(_LOWEST), larger)
        peak = self.let(f"call float @llvm.vector.reduce.fmax.v{lanes}f32({v} {most})")
        empty = self.let(f"fcmp oeq float {peak}, {_LOWEST}")
        if not self.biased:
            self.track_finite(self.splat(peak))
        peak = self.let(f"select i1 {empty}, float 0.0, float {peak}")
        wide = self.splat(peak)

        def powers(old: str, j: str) -> str:
            at = self.address(row, (j, 1))
            power = self.exp(self.binary("fsub", self.read(at), wide))
            self.write(power, at)
            return self.binary("fadd", old, power)

        total = self.sum(self.fold_row("best", "zeroinitializer", powers))
        share = self.let(f"fdiv float 1.0, {total}")
        share = self.let(f"select i1 {empty}, float 0.0, float {share}")
        self.track_finite(self.splat(share))
        for name, value in (("peak", peak), ("share", share)):
            self.do(f"store float {value}, ptr {self.address(f'%{name}.head', (query, 1))}, align 4")

    def load_share(self, query: str) -> str:
        """Load the share of a query's row."""
        return self.let(f"load float, ptr {self.address('%share.head', (query, 1))}, align 4")

    def store_rows(
        self, source: str, name: str, start: Index, count: str, factor: Callable[[str], str] | None
    ) -> None:
        """Copy rows without gaps to those of ``name`` from ``start`` on, times ``factor(row)``."""
        with self.loop(0, count) as r:
            row = self.let(f"add i64 {start}, {r}")
            wide = self.splat(factor(row)) if factor else ""
            own = self.address(source, (r, self.width))
            target = self.address(f"%{name}.head", (row, f"%{name}_row"))
            for at in range(0, self.width, self.lanes):
                value = self.read(self.address(own, (at, 1)))
                if factor:
                    value = self.binary("fmul", value, wide)
                self.track_finite(value)
                self.write(value, self.address(target, (at, 1)))

    def epilogue(self) -> str:
        """Free the memory, and report numbers that are not finite; return the text of ``work``."""
        lanes, v = self.lanes, self.vector
        self.do("call void @free(ptr %memory)")
        odd = self.let(f"fcmp uno {v} {self.read('%seen')}, zeroinitializer")
        bits = self.let(f"bitcast <{lanes} x i1> {odd} to i{lanes}")
        wrong = self.let(f"icmp ne i{lanes} {bits}, 0")
        self.do(f"br i1 {wrong}, label %wrong, label %right")
        self.label("wrong")
        self.do("store i64 1, ptr %flag")
        self.do("br label %right")
        self.label("right")
        self.entry.append(f"  %best = alloca {v}, align 64")
        return self.function("work", "ptr noalias %table, i64 %first, i64 %last")


def _products(width: int, lanes: int, rows: int, backward: bool) -> list[str]:
    wide = 2 * lanes
    text = [product("scores", lanes, 2, rows, (width, 1), wide, "%stride", False)]
    for w in sorted({vectors for _, vectors in panels(width, lanes)}):
        text.append(product(f"mean{w}", lanes, w, rows, ("%stride", 1), w * lanes, width, False))
        if backward:
            text.append(product(f"sums{w}", lanes, w, rows, (1, "%stride"), width, width, True))
    return text


@functools.cache
def forward(width: int, lanes: int, causal: bool, biased: bool) -> str:
    """The module that computes ``out``, ``peak`` and ``share``."""
    rows = lanes // 2
    code = _Head(width, lanes, rows, causal, biased)
    used = ("query", "key", "value", "out", *(("bias",) if biased else ()))
    sizes: list[tuple[str, Index, Index]] = [
        ("keys.t", "%columns", width), ("values", "%columns", width), ("q", BLOCK, width),
        ("s", BLOCK, "%stride"), ("o", BLOCK, width),
    ]  # fmt: skip
    code.prologue(sizes)
    with code.loop("%first", "%last") as piece:
        code.head_addresses(piece, used)
        code.pack_transposed("key", "%keys.t")
        code.pack("value", "%values")
        with code.loop(0, "%queries", BLOCK) as start:
            code.block_bounds(start)
            code.copy_block("query", start, "%q", "%factor")
            code.multiply_by_keys("%q", "%keys.t", "%s")
            with code.loop(0, "%count.q") as r:
                query, row = code.let(f"add i64 {start}, {r}"), code.address("%s", (r, "%stride"))
                code.mask_row(row, query)
                code.exponentials(row, query)
            for at, vectors in panels(width, lanes):
                b = code.address("%values", ("%columns", at))
                code.multiply(f"mean{vectors}", "%s", b, code.address("%o", (at, 1)), "%tiles", "%visible")
            code.store_rows("%o", "out", start, "%count.q", code.load_share)
    parts = [*_products(width, lanes, rows, False), code.epilogue(), declarations(lanes)]
    return "\n".join(parts) + driver(None)


@functools.cache
def backward(width: int, lanes: int, causal: bool, biased: bool) -> str:
    """The module that computes the gradients of query, key and value."""
    rows = lanes // 2
    code = _Head(width, lanes, rows, causal, biased)
    names = ("query", "key", "value", "out", "g", "dquery", "dkey", "dvalue")
    used = (*names, *(("bias",) if biased else ()))
    sizes: list[tuple[str, Index, Index]] = [
        *((name, "%columns", width) for name in ("keys.t", "values.t", "keys.p", "dk", "dv")),
        *((name, BLOCK, width) for name in ("q", "gs", "dq")),
        *((name, BLOCK, "%stride") for name in ("s", "ds")),
    ]
    code.prologue(sizes)
    with code.loop("%first", "%last") as piece:
        code.head_addresses(piece, used)
        code.pack_transposed("key", "%keys.t")
        code.pack_transposed("value", "%values.t")
        code.pack("key", "%keys.p")
        with code.loop(0, code.let(f"mul i64 %columns, {width}"), lanes) as i:
            for name in ("dk", "dv"):
                code.write("zeroinitializer", code.address(f"%{name}", (i, 1)))
        with code.loop(0, "%queries", BLOCK) as start:
            code.block_bounds(start)
            code.copy_block("query", start, "%q", "%factor")
            code.copy_block("g", start, "%gs", None)
            code.multiply_by_keys("%q", "%keys.t", "%s")
            code.multiply_by_keys("%gs", "%values.t", "%ds")
            with code.loop(0, "%count.q") as r:
                query = code.let(f"add i64 {start}, {r}")
                _score_gradients(code, r, query)
            for at, vectors in panels(width, lanes):
                b = code.address("%keys.p", ("%columns", at))
                code.multiply(f"mean{vectors}", "%ds", b, code.address("%dq", (at, 1)), "%tiles", "%visible")
            code.store_rows("%dq", "dquery", start, "%count.q", lambda row: "%factor")
            up = code.let(f"add i64 %visible, {rows - 1}")
            tiles = code.let(f"sdiv i64 {up}, {rows}")
            for left, right, total in (("%s", "%gs", "%dv"), ("%ds", "%q", "%dk")):
                for at, vectors in panels(width, lanes):
                    b, c = code.address(right, (at, 1)), code.address(total, (at, 1))
                    code.multiply(f"sums{vectors}", left, b, c, tiles, "%count.q")
        for name in ("dk", "dv"):
            target = "dkey" if name == "dk" else "dvalue"
            code.store_rows(f"%{name}", target, 0, "%keys", None)
    parts = [*_products(width, lanes, rows, True), code.epilogue(), declarations(lanes)]
    return "\n".join(parts) + driver(None)


def _score_gradients(code: _Head, r: str, query: str) -> None:
    """Replace a row of scores by the weights, and its slopes by ``weights * (slope - sum(g * out))``."""
    row, slope = code.address("%s", (r, "%stride")), code.address("%ds", (r, "%stride"))
    code.mask_row(row, query)
    g, out = code.address("%gs", (r, code.width)), code.address("%out.head", (query, "%out_row"))
    total = "zeroinitializer"
    for column in range(0, code.width, code.lanes):
        left, right = (code.read(code.address(array, (column, 1))) for array in (g, out))
        total = code.fused(left, right, total)
    pull = code.splat(code.sum(total))
    peak = code.let(f"load float, ptr {code.address('%peak.head', (query, 1))}, align 4")
    peaks, share = code.splat(peak), code.splat(code.load_share(query))
    with code.loop(0, "%limit", code.lanes) as j:
        at, to = code.address(row, (j, 1)), code.address(slope, (j, 1))
        weight = code.binary("fmul", code.exp(code.binary("fsub", code.read(at), peaks)), share)
        code.write(weight, at)
        code.write(code.binary("fmul", weight, code.binary("fsub", code.read(to), pull)), to)


__all__ = ["ARRAYS", "BLOCK", "WORDS", "backward", "forward", "panels"]
