"""Emit loops over elementwise clusters, and over one such cluster for many arrays (optimizers).

A pointwise cluster is one nest of loops over its merged axes: one flat loop if all arrays are contiguous, two
with a bias. Inputs are loaded first, outputs stored last, so that an output may also be an input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenon.extend import errors
from tenon_cpu.jit.compiler.llvm import driver
from tenon_cpu.jit.emission.formulas import Formula, convert, short_number
from tenon_cpu.jit.emission.functions import REAL, Code, Index, Operand, Type, Val, reading, type_of
from tenon_cpu.jit.fusion.domain import Cluster, Loops, Ref, Step

_LETTERS = "abc"


def types_of(cluster: Cluster) -> list[Type]:
    """The types of all values; NotFusableError if there is no code for one."""
    types = []
    for aval in [*cluster.inputs, *(s.aval for s in cluster.steps)]:
        kind = type_of(aval.dtype)
        if kind is None:
            raise errors.NotFusableError(f"no code for {aval.dtype}.")
        types.append(kind)
    return types


def emit_step(code: Code, step: Step, operands: Sequence[Operand | None]) -> Val:
    """The value of an elementwise step, from its operands."""
    assert step.computed is not None
    out, computed = type_of(step.aval.dtype), type_of(step.computed)
    assert out is not None and computed is not None
    formula = Formula(code, out if step.op == "cast" else computed)
    names: dict[str, object] = dict(step.attrs)
    definition = step.definition
    for position, (letter, v) in enumerate(zip(_LETTERS, operands, strict=False)):
        if step.op != "cast" and v is not None:
            if position < definition.promoted_from:
                v = formula.truth(v)
            elif computed.bits == 16 and not (definition.keeps_digits and position == 1):
                v = short_number(code, v, computed)
            else:
                v = convert(code, v, computed) if isinstance(v, Val) else v
        names[letter] = v
    if step.moves:
        moved = operands[0]
        assert isinstance(moved, Val)
        return moved
    return convert(code, formula.run(step.expression, names), out)


class Body:
    """The values of a cluster in one iteration of the loops, emitted at their first use."""

    def __init__(self, code: Code, cluster: Cluster, fixed: dict[int, Val]) -> None:
        self.code, self.cluster = code, cluster
        self.values: dict[int, Val] = dict(fixed)

    def load(self, index: int) -> Val:
        """Load an input's element of this iteration; overridden."""
        raise NotImplementedError

    def get(self, ref: Ref) -> Val:
        """A value in this iteration."""
        value = self.values.get(ref.index)
        if value is None:
            step = self.cluster.step(ref)
            if step is None:
                value = self.load(ref.index)
            else:
                operands = [self.get(a) if isinstance(a, tuple) else a for a in step.args]
                value = emit_step(self.code, step, operands)
            self.values[ref.index] = value
        return value


class _Element(Body):
    """The values of a pointwise cluster; ``elements`` has pointer and offset of each input's element."""

    def __init__(
        self, code: Code, cluster: Cluster, fixed: dict[int, Val], elements: Mapping[int, tuple[str, Index]]
    ) -> None:
        super().__init__(code, cluster, fixed)
        self.elements = elements
        self.types = types_of(cluster)

    def load(self, index: int) -> Val:
        pointer, offset = self.elements[index]
        return self.code.load(pointer, self.types[index], offset)


def pointers(cluster: Cluster) -> tuple[list[int], str]:
    """The values that are arrays, in the order of the kernel's parameters, and the text of these."""
    arrays = [*range(len(cluster.inputs)), *(r.index for r in cluster.outputs)]
    marks = ["" if i in cluster.numbers else "noalias " for i in range(len(arrays))]
    return arrays, ", ".join(f"ptr {m}%a{i}" for i, m in enumerate(marks))


def numbers(code: Code, cluster: Cluster) -> dict[int, Val]:
    """Load the number inputs, once for all iterations."""
    return {i: code.load(f"%a{i}", REAL) for i in sorted(cluster.numbers)}


def worker(code: Code, cluster: Cluster, extra: int = 0) -> str:
    """The text of ``body``, with the code, and of ``work(table, first, last)``, which calls it."""
    arrays, parameters = pointers(cluster)
    parameters += "".join(f", ptr noalias %x{i}" for i in range(extra))
    text = code.function("body", f"{parameters}, i64 %first, i64 %last")
    work = reading("body", ["ptr"] * (len(arrays) + extra))
    return "\n".join([text, work, *code.declared.values()])


def pointwise(cluster: Cluster, loops: Loops, fma: bool) -> tuple[str, int]:
    """The text of the module, and its number of pieces of work: the outermost loop's length."""
    code = Code(fma=fma)
    arrays, _ = pointers(cluster)
    fixed = numbers(code, cluster)
    n = len(cluster.inputs)
    offsets: dict[int, Index] = {p: 0 for p in range(len(arrays)) if p not in cluster.numbers}
    count = loops.sizes[0] if loops.sizes else 1

    def nest(depth: int, at: Mapping[int, Index]) -> None:
        if depth == len(loops.sizes):
            body = _Element(code, cluster, fixed, {i: (f"%a{i}", at[i]) for i in range(n) if i in at})
            results = [body.get(ref) for ref in cluster.outputs]
            for position, value in enumerate(results, n):
                code.store(value, f"%a{position}", at[position])
            return
        bounds: tuple[Index, Index] = ("%first", "%last") if depth == 0 else (0, loops.sizes[depth])
        with code.loop(*bounds) as i:
            inner = {}
            for position, offset in at.items():
                inner[position] = code.plus(offset, code.times(i, loops.strides[position][depth]))
            nest(depth + 1, inner)

    nest(0, offsets)
    return worker(code, cluster) + driver(count), count


def each(cluster: Cluster, targets: tuple[int, ...], fma: bool) -> str:
    """The module of a pointwise cluster over many flat arrays; output ``k`` overwrites input ``targets[k]``.

    The table's words are the number of pieces, the address of the pieces and that of the numbers; a piece has
    the addresses of the input arrays, then its length. There is no contraction to fused multiply-adds: the
    results are NumPy's, bit for bit.
    """
    code = Code(contract=False, fma=fma)
    arrays = [i for i in range(len(cluster.inputs)) if i not in cluster.numbers]
    fixed = {i: code.load("%numbers", REAL, p) for p, i in enumerate(sorted(cluster.numbers))}
    with code.loop(0, "%length") as i:
        body = _Element(code, cluster, fixed, {v: (f"%a{p}", i) for p, v in enumerate(arrays)})
        results = [body.get(ref) for ref in cluster.outputs]
        for target, value in zip(targets, results, strict=True):
            code.store(value, f"%a{arrays.index(target)}", i)
    listed = ", ".join(f"ptr noalias %a{p}" for p in range(len(arrays)))
    text = code.function("body", f"{listed}, i64 %length, ptr noalias %numbers")
    caller = Code()
    at = [caller.let(f"getelementptr i64, ptr %table, i64 {word}") for word in (1, 2)]
    pieces, own_numbers = (caller.let(f"load ptr, ptr {a}") for a in at)
    with caller.loop("%first", "%last") as i:
        row = caller.let(f"mul i64 {i}, {len(arrays) + 1}")
        words = []
        for p in range(len(arrays) + 1):
            word = caller.let(f"getelementptr i64, ptr {pieces}, i64 {caller.plus(row, p)}")
            words.append(caller.let(f"load {'ptr' if p < len(arrays) else 'i64'}, ptr {word}"))
        listed = ", ".join(f"ptr {w}" for w in words[:-1])
        caller.do(f"call void @body({listed}, i64 {words[-1]}, ptr {own_numbers})")
    work = caller.function("work", "ptr %table, i64 %first, i64 %last")
    return "\n".join([text, work, *code.declared.values()]) + driver(None)
