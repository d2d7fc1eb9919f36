"""Emit reductions: how they accumulate, and the function that runs when all rows are done."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tenon.extend import errors
from tenon_cpu.jit.emission.formulas import convert
from tenon_cpu.jit.emission.functions import REAL, TYPES, Code, Index, Type, Val, constant, reading
from tenon_cpu.jit.emission.pointwise import Body, numbers, pointers
from tenon_cpu.jit.fusion.domain import Ref, Step

if TYPE_CHECKING:
    from tenon_cpu.jit.emission.rows import Rows

_FLAG, _SINGLE = TYPES["uint8"], TYPES["float32"]


class Reduce:
    """How a reduction accumulates: in the type ``type``, starting from ``identity``."""

    def __init__(self, step: Step, source: Type) -> None:
        joined = step.definition.joined_by
        self.product, self.largest = joined == "mul", joined in ("maximum", "logical_or")
        self.arithmetic = self.product or joined == "add"
        self.mean = step.op == "mean"
        self.out = source
        if source.kind == "b" and self.arithmetic:
            raise errors.NotFusableError(f"no code for {step.op} of booleans.")
        self.logic = step.definition.boolean or source.kind == "b"
        self.type = _FLAG if self.logic else TYPES["float32"] if source.reg == "float" else source
        #: The type of totals: sums of floats are added in float64.
        self.wide = REAL if self.arithmetic and self.type.kind == "f" else self.type

    def identity(self, type: Type) -> Val:
        """The value that changes no other value it is joined with."""
        if self.arithmetic:
            value: float = int(self.product)
        elif self.logic:
            value = int(not self.largest)
        elif type.kind == "f":
            value = -math.inf if self.largest else math.inf
        else:
            low = 0 if type.kind == "u" else -(1 << (type.bits - 1))
            value = low if self.largest else low + (1 << type.bits) - 1
        return Val(constant(value, type), type)

    def element(self, code: Code, v: Val) -> Val:
        """An element, converted to the type of accumulation."""
        if not self.logic:
            return Val(v.text, self.type) if v.type.reg == self.type.reg else convert(code, v, self.type)
        is_nonzero = convert(code, v, TYPES["bool"])
        return Val(code.let(f"zext i1 {is_nonzero.text} to i8"), _FLAG)

    def join(self, code: Code, a: Val, b: Val, free: bool = False) -> Val:
        """Combine two values; ``free`` lets LLVM choose the order of many, so that it may use vectors."""
        reg, kind = a.type.reg, a.type.kind
        if self.arithmetic:
            if kind == "f":
                word = ("fmul" if self.product else "fadd") + (" reassoc" if free else "")
            else:
                word = "mul" if self.product else "add"
            return Val(code.let(f"{word} {reg} {a.text}, {b.text}"), a.type)
        name = "max" if self.largest else "min"
        if kind == "f":
            return Val(code.call(f"llvm.{name}imum.f{a.type.bits}", reg, a, b), a.type)
        return Val(code.call(f"llvm.{'s' if kind == 'i' else 'u'}{name}.{reg}", reg, a, b), a.type)

    def result(self, code: Code, v: Val, count: int) -> Val:
        """The result of the reduction, from the accumulated value of ``count`` elements."""
        if self.logic:
            return Val(code.let(f"icmp ne i8 {v.text}, 0"), TYPES["bool"])
        if self.mean:
            v = Val(code.let(f"fdiv {v.type.reg} {v.text}, {constant(count, v.type)}"), v.type)
        v = v if v.type.reg == self.out.reg else convert(code, v, _SINGLE)
        return Val(v.text, self.out)


class After(Body):
    """``after(table)``: joins the results of all chunks, and computes the values that depend on them."""

    def __init__(self, rows: Rows) -> None:
        code = Code(fma=rows.fma)
        super().__init__(code, rows.cluster, {})
        self.rows = rows
        self.offsets: Mapping[int, Index] = {}
        self.column: Index = 0

    def function(self) -> tuple[str, list[str]]:
        """The text of the function, and the declarations that it needs."""
        rows, code = self.rows, self.code
        _, parameters = pointers(self.cluster)
        parameters += "".join(f", ptr noalias %x{i}" for i in range(len(rows.sums)))
        single = numbers(code, self.cluster)
        for position, index in enumerate(rows.sums):
            how = rows.reduce[index]
            if rows.vector(index):
                if rows.chunks > 1:
                    self._join_chunks(position, how)
            else:
                total = code.load(f"%x{position}", how.wide)
                for c in range(1, rows.chunks):
                    total = how.join(code, total, code.load(f"%x{position}", how.wide, c))
                single[index] = how.result(code, total, rows.counted(index))
        self.values = dict(single)
        outputs = [(p, r) for p, r in enumerate(self.cluster.outputs, rows.n) if r.index in rows.plan.after]
        for position, ref in outputs:
            if not rows.loops.has[ref.index]:
                code.store(self.get(ref), f"%a{position}")
        long = [(p, r) for p, r in outputs if rows.loops.has[r.index]]
        if long:
            start: dict[int, Index] = {p: 0 for p in range(len(rows.arrays)) if p not in self.cluster.numbers}
            self._along(0, start, 0, long, single)
        text = code.function("inner_after", parameters)
        kinds = ["ptr"] * (len(rows.arrays) + len(rows.sums))
        after = reading("inner_after", kinds, name="after", span=())
        return text + "\n" + after, list(code.declared.values())

    def _join_chunks(self, position: int, how: Reduce) -> None:
        """Join the rows of results of all chunks to that of the first."""
        code, row = self.code, self.rows.plan.row
        with code.loop(1, self.rows.chunks) as c:
            base = code.at(f"%x{position}", how.type, code.times(c, row))
            with code.loop(0, row) as j:
                a, b = code.load(f"%x{position}", how.type, j), code.load(base, how.type, j)
                code.store(how.join(code, a, b), f"%x{position}", j)

    def _along(
        self, depth: int, offsets: Mapping[int, Index], column: Index, long: Sequence[tuple[int, Ref]],
        single: dict[int, Val],
    ) -> None:  # fmt: skip
        """Emit loops over the inner axes from ``depth`` on, which compute the outputs ``long``."""
        rows, code = self.rows, self.code
        axes = rows.plan.inner_axes
        if depth == len(axes):
            self.offsets, self.column, self.values = offsets, column, dict(single)
            results = [(p, self.get(ref)) for p, ref in long]
            for position, value in results:
                code.store(value, f"%a{position}", offsets[position])
            return
        axis = axes[depth]
        with code.loop(0, rows.loops.sizes[axis]) as i:
            moved = {p: code.plus(o, code.times(i, rows.loops.strides[p][axis])) for p, o in offsets.items()}
            inner = code.plus(code.times(column, rows.loops.sizes[axis]), i)
            self._along(depth + 1, moved, inner, long, single)

    def get(self, ref: Ref) -> Val:
        """The result of a reduction over all rows, or a value that depends on one."""
        if ref.index not in self.values:
            step = self.cluster.step(ref)
            if step is not None and step.reduces:
                position, how = self.rows.sums.index(ref.index), self.rows.reduce[ref.index]
                total = self.code.load(f"%x{position}", how.type, self.column)
                self.values[ref.index] = how.result(self.code, total, self.rows.counted(ref.index))
        return super().get(ref)

    def load(self, index: int) -> Val:
        """Load an input's element."""
        return self.code.load(f"%a{index}", self.rows.types[index], self.offsets.get(index, 0))
