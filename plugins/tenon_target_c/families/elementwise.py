"""Elementwise ops: a group of calls becomes one generated loop, from the ops' own expressions.

``const float t2 = ...;`` is one call; operands are read at strides, so that broadcast and moved operands
need no copies. Loops with equal text are one C function; sizes and strides are its arguments.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from tenon.extend import Aval, Node, Op, Ref
from tenon_target_c.expressions import convert, literal, translate
from tenon_target_c.program import Place, Program, out, scalar_text
from tenon_target_c.values import CTYPES, View, supported

#: Expressions of ops that do not declare one, in the same language.
MORE = {
    "copy": "b",
    "once": "a",
    "refused": "a",
    "remainder": "remainder(a, b)",
    "fmod": "fmod(a, b)",
    "floor_divide": "floor(a / b)",
    "to_device": "a",
    "xlogy": "a * log(1 if (a == 0) & (b == b) else b)",
    "sinc": "1 if a == 0 else sin(3.141592653589793 * a) / (3.141592653589793 * a)",
    "nextafter": "nextafter(a, b)",
    "lgamma": "lgamma(a)",
    "erfinv": "erfinv(a)",
    "digamma": "digamma(a)",
}
#: The same for integers.
WHOLE = {
    "remainder": "remainder(a, b)",
    "fmod": "fmod(a, b)",
    "floor_divide": "floor_divide(a, b)",
    "pow": "power(a, b)",
    "whole_power": "power(a, b)",
    "gcd": "gcd(a, b)",
    "lcm": "lcm(a, b)",
    "bitwise_left_shift": "left_shift(a, b)",
    "bitwise_right_shift": "right_shift(a, b)",
}
#: Those whose second operand may not be 0.
_DIVISIONS = frozenset({"remainder", "fmod", "floor_divide"})
_OPERAND, _NAME = re.compile(r"\bx\d+\b"), re.compile(r"\bt\d+\b")


def expression_of(node: Node, numbers: Collection[Place] = ()) -> str | None:
    """Return the expression of a call, for any values of ``numbers``; None if it is not elementwise in C."""
    op: Op = node.op
    if op.name in WHOLE and node.avals[0].dtype.kind in "iu":
        return WHOLE[op.name]
    if op.name in MORE:
        return MORE[op.name]
    if op.name == "round" and node.attrs.get("decimals"):
        scale = float(10 ** abs(node.attrs["decimals"]))
        return (
            f"rint(a * {scale}) / {scale}" if node.attrs["decimals"] > 0 else f"rint(a / {scale}) * {scale}"
        )
    avals = [
        ... if i in numbers else a.aval if a.__class__ is Ref and not a.scalar else a
        for i, a in enumerate(node.args)
    ]
    return op.expression_for(avals, node.attrs)


def is_elementwise(node: Node) -> bool:
    """Whether a call has a C expression."""
    if node.kind != "call" or node.op.view or len(node.avals) != 1 or not supported(node.avals[0]):
        return False
    if not all(supported(r.aval) for r in node.refs):
        return False
    try:
        text = expression_of(node)
        if text is None:
            return False
        _text_of(node, text, {r: "x" for r in node.refs})
    except NotImplementedError:
        return False
    return True


def computed_dtype(node: Node) -> np.dtype:
    """Return the dtype in which a call computes: the common one of its arrays."""
    op: Op = node.op
    operands = node.args[op.promoted_from :]
    if op.name == "copy":
        operands = node.args[1:]
    strong = [a.aval.dtype for a in operands if a.__class__ is Ref and not a.scalar]
    out_dtype: np.dtype = node.avals[0].dtype
    if not strong:
        return out_dtype if out_dtype.kind != "b" else np.dtype(np.float64)
    if op.name in ("cast", "copy"):
        return strong[0]
    common = np.result_type(*strong)
    fraction = any(a.__class__ is float or (a.__class__ is Ref and a.scalar) for a in operands)
    if fraction and common.kind in "iub":
        common = out_dtype if out_dtype.kind == "f" else np.dtype(np.float64)
    if common.kind == "b" and any(a.__class__ is int for a in operands):
        common = out_dtype if out_dtype.kind in "iu" else np.dtype(np.int64)
    return common


def _text_of(
    node: Node, expression: str, texts: Mapping[Ref, str], numbers: Mapping[Place, str] = MappingProxyType({})
) -> str:
    """Return the C text of a call, given those of its operands and of numbers that change; in the dtype of
    its result."""
    dtype, target = computed_dtype(node), node.avals[0].dtype
    if dtype.name not in CTYPES:
        raise NotImplementedError(f"no C for {dtype}")
    names: dict[str, str] = {}
    for position, (letter, a) in enumerate(zip("abc", node.args, strict=False)):
        if a is None:
            continue
        if position in numbers:
            names[letter] = convert(numbers[position], np.dtype(np.float64), dtype)
        elif a.__class__ is not Ref:
            names[letter] = literal(a, dtype)
        elif a.scalar:
            names[letter] = convert(texts[a], np.dtype(np.float64), dtype)
        elif letter == "a" and node.op.promoted_from:
            names[letter] = texts[a]
        else:
            names[letter] = convert(texts[a], a.aval.dtype, dtype)
    for name, value in {**node.op.defaults, **node.attrs}.items():
        if name in numbers:
            names[name] = convert(numbers[name], np.dtype(np.float64), dtype)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            names[name] = literal(value, dtype)
    text = translate(expression, dtype, names)
    return convert(text, np.dtype(np.bool_) if node.op.boolean else dtype, target)


def emit_group(program: Program, nodes: Sequence[Node]) -> None:
    """Add one loop for ``nodes``, of which only the last one's result is stored."""
    root = nodes[-1]
    target = program.new(root)
    emit_loop(program, nodes, target)


def emit_loop(program: Program, nodes: Sequence[Node], target: View) -> None:
    """Add a loop that computes ``nodes`` and stores the last one's result in ``target``."""
    inside = {n.out() for n in nodes}
    outside = list(dict.fromkeys(r for n in nodes for r in n.refs if r not in inside))
    arrays = [r for r in outside if not r.scalar]
    texts: dict[Ref, str] = {r: f"s{i}" for i, r in enumerate(r for r in outside if r.scalar)}
    texts.update((r, f"x{i}") for i, r in enumerate(arrays))
    scalars: list[str | int] = [program.scalars[r] for r in outside if r.scalar]
    lines = []
    for position, node in enumerate(nodes):
        numbers: dict[Place, str] = {}
        for place in sorted(program.changing.get(node, ()), key=str):
            numbers[place] = f"s{len(scalars)}"
            scalars.append(node.attrs[place] if isinstance(place, str) else node.args[place])
        expression = expression_of(node, numbers)
        assert expression is not None
        divisor = _divisor(node, texts, numbers)
        if divisor:
            lines.append(f"bad |= {divisor} == 0;")
        text = _text_of(node, expression, texts, numbers)
        texts[node.out()] = name = f"t{position}"
        lines.append(f"const {CTYPES[node.avals[0].dtype.name]} {name} = {text};")
    result = texts[nodes[-1].out()]
    loop = Loop(program, target, [program.view(r) for r in arrays])
    loop.emit(_read(lines, result), result, scalars, "each")


def _read(lines: Sequence[str], result: str) -> list[str]:
    """Return the ``lines`` whose variable is read by another one or is the ``result``."""
    kept: list[str] = []
    names = {result}
    for line in reversed(lines):
        head, _, text = line.partition(" = ")
        if not text or head.split()[-1] in names:
            kept.append(line)
            names.update(_NAME.findall(text or line))
    return kept[::-1]


def _divisor(node: Node, texts: Mapping[Ref, str], numbers: Mapping[Place, str]) -> str:
    """Return the C text of what may not be zero, in a division of integers by anything but a constant."""
    dtype = node.avals[0].dtype
    if node.name not in _DIVISIONS or dtype.kind not in "iu":
        return ""
    if 1 in numbers:
        return convert(numbers[1], np.dtype(np.float64), dtype)
    divisor = node.args[1]
    if divisor.__class__ is not Ref:
        return ""
    return convert(texts[divisor], np.dtype(np.float64) if divisor.scalar else divisor.aval.dtype, dtype)


def copy_loop(program: Program, source: View, target: View) -> None:
    """Add a loop that copies ``source``, broadcast to the shape of ``target``."""
    loop = Loop(program, target, [source])
    loop.emit([], convert("x0", source.dtype, target.dtype), [], "copy")


def fill(program: Program, target: View, value: float, changes: bool = False) -> None:
    """Add a loop that sets all elements of ``target``, to a ``value`` that may be another in each run."""
    if not target.size:
        return
    loop = Loop(program, target, [])
    if changes:
        loop.emit([], convert("s0", np.dtype(np.float64), target.dtype), [int(value)], "fill")
    else:
        loop.emit([], literal(value, target.dtype), [], "fill")


class Loop:
    """Nested loops over the elements of ``target``, with operands at strides."""

    def __init__(self, program: Program, target: View, operands: Sequence[View]) -> None:
        self.program, self.target, self.operands = program, target, operands
        shape = target.shape
        strides = [target.strides, *(_broadcast(v, shape) for v in operands)]
        self.sizes, self.strides = collapse(shape, strides)

    def emit(self, lines: Sequence[str], result: str, scalars: Sequence[str | int], stem: str) -> None:
        """Add the call of a function with these ``lines`` in its innermost loop."""
        rank = len(self.sizes)
        parameters = [f"{self.target.ctype} *restrict out"]
        parameters += [f"const {v.ctype} *restrict in{i}" for i, v in enumerate(self.operands)]
        parameters += [f"double s{i}" for i in range(len(scalars))]
        parameters += [f"long n{d}" for d in range(rank)]
        arguments: list[object] = [out(self.target), *self.operands, *scalars, *self.sizes]
        places: list[str] = []
        for which, strides in enumerate(self.strides):
            terms = []
            for d, stride in enumerate(strides):
                if stride == 1:
                    terms.append(f"i{d}")
                elif stride:
                    name = f"p{which}_{d}"
                    parameters.append(f"long {name}")
                    arguments.append(stride)
                    terms.append(f"i{d} * {name}")
            places.append(" + ".join(terms) or "0")
        read = set(_OPERAND.findall(" ".join([*lines, result])))
        body = [
            f"const {v.ctype} x{i} = in{i}[{places[i + 1]}];" if f"x{i}" in read else f"(void)in{i};"
            for i, v in enumerate(self.operands)
        ]
        body += [*lines, f"out[{places[0]}] = {result};"]
        text = "".join(f"{'    ' * (d + 1)}for (long i{d} = 0; i{d} < n{d}; i{d}++)\n" for d in range(rank))
        indent = "    " * (rank + 1)
        block = "\n".join(indent + "    " + line for line in body)
        checks = any(line.startswith("bad |= ") for line in lines)
        start, end = ("    int bad = 0;\n", "    return bad;\n") if checks else ("", "")
        text = (
            f"static {'int' if checks else 'void'} @({', '.join(parameters)})\n{{\n{start}{text}{indent}{{\n"
            f"{block}\n{indent}}}\n{end}}}\n"
        )
        name = self.program.function(text, stem)
        self.program.step(name, *arguments, fallible=checks, error="MODEL_ZERO_DIVISOR")  # type: ignore[arg-type]


def _broadcast(view: View, shape: tuple[int, ...]) -> tuple[int, ...]:
    array = np.broadcast_to(view.array, shape)
    return tuple(
        0 if size == 1 else stride // view.array.itemsize
        for size, stride in zip(array.shape, array.strides, strict=True)
    )


def collapse(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    """Drop axes of size 1 and merge neighbouring axes that are contiguous in all operands."""
    sizes: list[int] = []
    result: list[list[int]] = [[] for _ in strides]
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        if sizes and all(r[-1] == s[axis] * size for r, s in zip(result, strides, strict=True)):
            sizes[-1] *= size
            for r, s in zip(result, strides, strict=True):
                r[-1] = s[axis]
        else:
            sizes.append(size)
            for r, s in zip(result, strides, strict=True):
                r.append(s[axis])
    if not sizes:
        return [1], [[1] for _ in strides]
    return sizes, result


def number(program: Program, value: object) -> str:
    """Return the C text of a number or scalar."""
    return scalar_text(program, value)


def zero_size(aval: Aval) -> bool:
    """Whether an array has no elements."""
    return aval.size == 0
