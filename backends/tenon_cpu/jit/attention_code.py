"""LLVM text of attention: one head, a block of queries at a time, so that scores never leave the cache.

A piece of work is one head of one sample. Keys are turned into panels (``[columns / 32][width][32]``), values
are copied into such panels as well, and a block of queries passes through product, softmax and product; its
gradient through five products, for which the weights are made anew from the peak and the share of each row.
What a causal block cannot see is left out. Tiles of a product stay in registers: eight rows of two vectors.

Numbers that are not finite leave 1 at ``flag``: the caller then computes by the parts, whose products say
where NaN and infinity go.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from tenon_cpu.jit.attention_vectors import Index, Vectors, declarations, product
from tenon_cpu.jit.compiler.llvm import driver

#: Queries that are worked on at a time.
BLOCK = 16
#: What the table of a call holds: addresses, sizes, and strides in elements of axes batch, head and row.
ARRAYS = ("query", "key", "value", "bias", "out", "g", "dquery", "dkey", "dvalue")
WORDS = (
    "count", "flag", "heads", "queries", "keys", "scale", "peak", "share",
    *ARRAYS, *(f"{name}_{axis}" for name in ARRAYS for axis in ("batch", "head", "row")),
)  # fmt: skip
#: Minus infinity, as LLVM spells it.
_LOWEST = "0xFFF0000000000000"


def panels(width: int, lanes: int) -> list[tuple[int, int]]:
    """First column and number of vectors of each panel of ``width`` columns."""
    return [(at, min(2, (width - at) // lanes)) for at in range(0, width, 2 * lanes)]


class _Head(Vectors):
    """``work``: attention of the heads ``first`` to ``last``."""

    def __init__(self, width: int, lanes: int, rows: int, causal: bool, biased: bool) -> None:
        super().__init__(lanes)
        self.width, self.rows, self.causal, self.biased = width, rows, causal, biased

    def begin(self, scratch: Sequence[tuple[str, Index, Index]]) -> None:
        """Read the table and take memory: ``(name, factor, factor)`` for each array of scratch."""
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
        places, total = [], "0"
        for _, a, b in scratch:
            places.append(total)
            size = self.let(f"mul i64 {a}, {b}")
            total = self.let(f"add i64 {total}, {size}")
        self.do(f"%bytes = shl i64 {total}, 2")
        self.do("%memory = call ptr @aligned_alloc(i64 64, i64 %bytes)")
        self.do("%none = icmp eq ptr %memory, null")
        self.do("br i1 %none, label %wrong, label %ready")
        self.label("ready")
        for (name, _, _), place in zip(scratch, places, strict=True):
            self.do(f"%{name} = getelementptr float, ptr %memory, i64 {place}")

    def head(self, piece: str, used: Sequence[str]) -> None:
        """Where the arrays of a head begin: ``%<name>.head``."""
        batch, head = self.let(f"sdiv i64 {piece}, %heads"), self.let(f"srem i64 {piece}, %heads")
        for name in used:
            at = self.place(f"%{name}", (batch, f"%{name}_batch"), (head, f"%{name}_head"))
            self.do(f"%{name}.head = getelementptr float, ptr {at}, i64 0")
        for name in ("peak", "share"):
            at = self.place(f"%{name}", (piece, "%queries"))
            self.do(f"%{name}.head = getelementptr float, ptr {at}, i64 0")

    def turned(self, name: str, target: str) -> None:
        """The rows of ``name`` as columns of panels; those after the last are like it."""
        lanes, wide = self.lanes, 2 * self.lanes
        last = self.let("sub i64 %keys, 1")
        with self.loop(0, "%columns", lanes) as j:
            panel = self.let(f"and i64 {j}, {-wide}")
            inside = self.let(f"and i64 {j}, {lanes}")
            base = self.place(self.place(target, (panel, self.width)), (inside, 1))
            sources = []
            for i in range(lanes):
                row = self.least(self.let(f"add i64 {j}, {i}"), last)
                sources.append(self.place(f"%{name}.head", (row, f"%{name}_row")))
            with self.loop(0, self.width, lanes) as e:
                values = [self.read(self.place(at, (e, 1))) for at in sources]
                for value in values:
                    self.look(value)
                for i, value in enumerate(self._turn(values)):
                    row = self.let(f"add i64 {e}, {i}")
                    self.write(value, self.place(base, (row, wide)))

    def _turn(self, values: list[str]) -> list[str]:
        """The transposed square of vectors: halves of ever smaller squares change places."""
        lanes, step = self.lanes, self.lanes // 2
        while step:
            made = list(values)
            for i in range(lanes):
                if i & step:
                    continue
                low = [k if not k & step else lanes + k - step for k in range(lanes)]
                high = [k + step if not k & step else lanes + k for k in range(lanes)]
                for at, order in ((i, low), (i + step, high)):
                    mask = ", ".join(f"i32 {k}" for k in order)
                    made[at] = self.let(
                        f"shufflevector {self.vector} {values[i]}, {self.vector} {values[i + step]},"
                        f" <{lanes} x i32> <{mask}>"
                    )
            values, step = made, step // 2
        return values

    def paneled(self, name: str, target: str) -> None:
        """The rows of ``name`` in panels."""
        with self.loop(0, "%keys") as j:
            source = self.place(f"%{name}.head", (j, f"%{name}_row"))
            for at, vectors in panels(self.width, self.lanes):
                own = self.place(self.place(target, ("%columns", at)), (j, vectors * self.lanes))
                for w in range(vectors):
                    value = self.read(self.place(source, (at + w * self.lanes, 1)))
                    self.look(value)
                    self.write(value, self.place(own, (w, self.lanes)))

    def bounds(self, start: str) -> None:
        """``%count.q``: queries of the block; ``%visible``: keys that some of them see; ``%limit``: whole
        panels of them."""
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

    def copied(self, name: str, start: str, target: str, factor: str | None) -> None:
        """The block's rows of ``name`` side by side, times ``factor``."""
        wide = self.same(factor) if factor else ""
        with self.loop(0, "%count.q") as r:
            row = self.let(f"add i64 {start}, {r}")
            source = self.place(f"%{name}.head", (row, f"%{name}_row"))
            own = self.place(target, (r, self.width))
            for at in range(0, self.width, self.lanes):
                value = self.read(self.place(source, (at, 1)))
                self.look(value)
                if factor:
                    value = self.both("fmul", value, wide)
                self.write(value, self.place(own, (at, 1)))

    def scores(self, left: str, right: str, target: str) -> None:
        """The block's products with panels of all columns that it sees."""
        wide = 2 * self.lanes
        with self.loop(0, "%limit", wide) as j:
            b = self.place(right, (j, self.width))
            self.multiply("scores", left, b, self.place(target, (j, 1)), "%tiles", self.width)

    def multiply(self, name: str, a: str, b: str, c: str, tiles: Index, k: Index) -> None:
        """One call of a product."""
        self.do(f"call void @{name}(ptr {a}, ptr {b}, ptr {c}, i64 {tiles}, i64 {k}, i64 %stride)")

    def hidden(self, row: str, query: str) -> None:
        """Add the bias; minus infinity where ``query`` may not look."""
        lanes, v = self.lanes, self.vector
        if self.biased:
            source = self.place("%bias.head", (query, "%bias_row"))
            with self.loop(0, "%keys", lanes) as j:
                at, own = self.place(source, (j, 1)), self.place(row, (j, 1))
                there = self.lower(j, "%keys")
                more = self.let(
                    f"call {v} @llvm.masked.load.v{lanes}f32.p0(ptr {at}, i32 4, <{lanes} x i1> {there},"
                    f" {v} zeroinitializer)"
                )
                self.write(self.both("fadd", self.read(own), more), own)
        end = "%keys"
        if self.causal:
            end = self.least(self.let(f"add i64 {query}, 1"), "%keys")
        whole = self.let(f"and i64 {end}, {-lanes}")
        lowest = self.same(_LOWEST)
        with self.loop(whole, "%limit", lanes) as j:
            own = self.place(row, (j, 1))
            seen = self.lower(j, end)
            kept = self.let(f"select <{lanes} x i1> {seen}, {v} {self.read(own)}, {v} {lowest}")
            self.write(kept, own)

    def reduced(self, name: str, start: str, step: Callable[[str, str], str]) -> str:
        """``%name`` as a vector that ``step(code, vector, j)`` changes over the columns of a row."""
        self.do(f"store {self.vector} {start}, ptr %{name}, align 64")
        with self.loop(0, "%limit", self.lanes) as j:
            self.write(step(self.read(f"%{name}"), j), f"%{name}")
        return self.read(f"%{name}")

    def peaked(self, row: str, query: str) -> None:
        """Powers of the row's scores below their peak; peak and share of their sum are kept."""
        lanes, v = self.lanes, self.vector

        def larger(old: str, j: str) -> str:
            return self.let(
                f"call {v} @llvm.maxnum.v{lanes}f32({v} {old}, {v} {self.read(self.place(row, (j, 1)))})"
            )

        most = self.reduced("best", self.number_of(_LOWEST), larger)
        peak = self.let(f"call float @llvm.vector.reduce.fmax.v{lanes}f32({v} {most})")
        empty = self.let(f"fcmp oeq float {peak}, {_LOWEST}")
        if not self.biased:
            self.look(self.same(peak))
        peak = self.let(f"select i1 {empty}, float 0.0, float {peak}")
        wide = self.same(peak)

        def powers(old: str, j: str) -> str:
            at = self.place(row, (j, 1))
            power = self.exp(self.both("fsub", self.read(at), wide))
            self.write(power, at)
            return self.both("fadd", old, power)

        total = self.sum(self.reduced("best", "zeroinitializer", powers))
        share = self.let(f"fdiv float 1.0, {total}")
        share = self.let(f"select i1 {empty}, float 0.0, float {share}")
        self.look(self.same(share))
        for name, value in (("peak", peak), ("share", share)):
            self.do(f"store float {value}, ptr {self.place(f'%{name}.head', (query, 1))}, align 4")

    def share_of(self, query: str) -> str:
        """The share of a query's row."""
        return self.let(f"load float, ptr {self.place('%share.head', (query, 1))}, align 4")

    def returned(
        self, source: str, name: str, start: Index, count: str, factor: Callable[[str], str] | None
    ) -> None:
        """Rows side by side to those of ``name`` from ``start`` on, times ``factor(row)``."""
        with self.loop(0, count) as r:
            row = self.let(f"add i64 {start}, {r}")
            wide = self.same(factor(row)) if factor else ""
            own = self.place(source, (r, self.width))
            target = self.place(f"%{name}.head", (row, f"%{name}_row"))
            for at in range(0, self.width, self.lanes):
                value = self.read(self.place(own, (at, 1)))
                if factor:
                    value = self.both("fmul", value, wide)
                self.look(value)
                self.write(value, self.place(target, (at, 1)))

    def end(self) -> str:
        """The text of ``work``."""
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
    sizes = [("keys.t", "%columns", width), ("values", "%columns", width), ("q", BLOCK, width)]
    code.begin([*sizes, ("s", BLOCK, "%stride"), ("o", BLOCK, width)])
    with code.loop("%first", "%last") as piece:
        code.head(piece, used)
        code.turned("key", "%keys.t")
        code.paneled("value", "%values")
        with code.loop(0, "%queries", BLOCK) as start:
            code.bounds(start)
            code.copied("query", start, "%q", "%factor")
            code.scores("%q", "%keys.t", "%s")
            with code.loop(0, "%count.q") as r:
                query, row = code.let(f"add i64 {start}, {r}"), code.place("%s", (r, "%stride"))
                code.hidden(row, query)
                code.peaked(row, query)
            for at, vectors in panels(width, lanes):
                b = code.place("%values", ("%columns", at))
                code.multiply(f"mean{vectors}", "%s", b, code.place("%o", (at, 1)), "%tiles", "%visible")
            code.returned("%o", "out", start, "%count.q", code.share_of)
    parts = [*_products(width, lanes, rows, False), code.end(), declarations(lanes)]
    return "\n".join(parts) + driver(None)


@functools.cache
def backward(width: int, lanes: int, causal: bool, biased: bool) -> str:
    """The module that computes the gradients of query, key and value."""
    rows = lanes // 2
    code = _Head(width, lanes, rows, causal, biased)
    names = ("query", "key", "value", "out", "g", "dquery", "dkey", "dvalue")
    used = (*names, *(("bias",) if biased else ()))
    whole = [(name, "%columns", width) for name in ("keys.t", "values.t", "keys.p", "dk", "dv")]
    blocks = [(name, BLOCK, width) for name in ("q", "gs", "dq")]
    code.begin([*whole, *blocks, ("s", BLOCK, "%stride"), ("ds", BLOCK, "%stride")])
    with code.loop("%first", "%last") as piece:
        code.head(piece, used)
        code.turned("key", "%keys.t")
        code.turned("value", "%values.t")
        code.paneled("key", "%keys.p")
        with code.loop(0, code.let(f"mul i64 %columns, {width}"), lanes) as i:
            for name in ("dk", "dv"):
                code.write("zeroinitializer", code.place(f"%{name}", (i, 1)))
        with code.loop(0, "%queries", BLOCK) as start:
            code.bounds(start)
            code.copied("query", start, "%q", "%factor")
            code.copied("g", start, "%gs", None)
            code.scores("%q", "%keys.t", "%s")
            code.scores("%gs", "%values.t", "%ds")
            with code.loop(0, "%count.q") as r:
                query = code.let(f"add i64 {start}, {r}")
                _slopes(code, r, query)
            for at, vectors in panels(width, lanes):
                b = code.place("%keys.p", ("%columns", at))
                code.multiply(f"mean{vectors}", "%ds", b, code.place("%dq", (at, 1)), "%tiles", "%visible")
            code.returned("%dq", "dquery", start, "%count.q", lambda row: "%factor")
            up = code.let(f"add i64 %visible, {rows - 1}")
            tiles = code.let(f"sdiv i64 {up}, {rows}")
            for left, right, total in (("%s", "%gs", "%dv"), ("%ds", "%q", "%dk")):
                for at, vectors in panels(width, lanes):
                    places = code.place(right, (at, 1)), code.place(total, (at, 1))
                    code.multiply(f"sums{vectors}", left, *places, tiles, "%count.q")
        for name in ("dk", "dv"):
            target = "dkey" if name == "dk" else "dvalue"
            code.returned(f"%{name}", target, 0, "%keys", None)
    parts = [*_products(width, lanes, rows, True), code.end(), declarations(lanes)]
    return "\n".join(parts) + driver(None)


def _slopes(code: _Head, r: str, query: str) -> None:
    """A row's weights, and ``weights * (slope - sum(g * out))``, in place of scores and slopes."""
    row, slope = code.place("%s", (r, "%stride")), code.place("%ds", (r, "%stride"))
    code.hidden(row, query)
    given, made = code.place("%gs", (r, code.width)), code.place("%out.head", (query, "%out_row"))
    total = "zeroinitializer"
    for at in range(0, code.width, code.lanes):
        total = code.fused(code.read(code.place(given, (at, 1))), code.read(code.place(made, (at, 1))), total)
    pull = code.same(code.sum(total))
    peak = code.let(f"load float, ptr {code.place('%peak.head', (query, 1))}, align 4")
    peaks, share = code.same(peak), code.same(code.share_of(query))
    with code.loop(0, "%limit", code.lanes) as j:
        at, to = code.place(row, (j, 1)), code.place(slope, (j, 1))
        weight = code.both("fmul", code.exp(code.both("fsub", code.read(at), peaks)), share)
        code.write(weight, at)
        code.write(code.both("fmul", weight, code.both("fsub", code.read(to), pull)), to)


__all__ = ["ARRAYS", "BLOCK", "WORDS", "backward", "forward", "panels"]
