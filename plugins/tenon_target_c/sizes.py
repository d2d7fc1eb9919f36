"""Sizes that may change: one program for all of them, with memory for the largest.

The program is built at several sizes. All builds have to be the same but for numbers in the arguments of
steps, which become expressions of the sizes; what else differs (a table, the shape of a loop) is refused.
Memory is laid out for the largest sizes, where every array is largest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tenon.extend import CapturedGraph, Expression, Node, SizeGuard, errors, fit_sizes, spell_numbers
from tenon_target_c.building import prepared, program_of
from tenon_target_c.program import Place, Program, Step, StepArgument
from tenon_target_c.scalars import COMPARISONS, OPERATORS
from tenon_target_c.values import Pointer, View

#: How far below a size one is searched for which the guards hold, at most.
_STEPS = 1 << 16
_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")
_SYMBOL = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a program that may change, and the shapes that follow from them."""

    #: Least and largest of each.
    ranges: Mapping[str, tuple[int, int]]
    #: Where each is read: the position of an argument, and its axis.
    places: Mapping[str, tuple[int, int]]
    #: C text of the sizes of arguments and results that change: (position, axis) -> text.
    inputs: Mapping[tuple[int, int], str]
    outputs: Mapping[tuple[int, int], str]
    #: Comparisons of sizes, with the answers that a run's sizes must give.
    guards: Sequence[SizeGuard] = ()


def largest(graph: CapturedGraph) -> dict[str, int]:
    """Return the largest sizes of the symbols; LoweringError if one has no limit."""
    unlimited = [name for name, symbol in graph.symbols.items() if symbol.most is None]
    if unlimited:
        name = unlimited[0]
        raise errors.LoweringError(
            f"the target c plans its memory for the largest sizes, and {', '.join(unlimited)} has no limit. "
            f'Set graph.symbols["{name}"] = graph.symbols["{name}"].bounded(1, 64), or export a Dim of max=.'
        )
    return {name: int(symbol.most or 0) for name, symbol in graph.symbols.items()}


def _samples(graph: CapturedGraph) -> list[dict[str, int]]:
    """Return sizes to compare for which the guards hold, from the largest down: of 1 there may be loops
    less."""
    most = _permitted(graph, largest(graph))
    few = most is None or (graph.size_guards and min(most.values()) < 4)
    proposed = [] if most is None or few else _all_samples(graph, most)
    samples = [found for sizes in proposed if (found := _permitted(graph, sizes)) is not None]
    distinct = list({tuple(sizes.items()): sizes for sizes in samples}.values())
    if graph.size_guards and len(distinct) < 3:
        raise errors.LoweringError(
            f"the target c compares programs of several sizes, and {graph.size_guards[0].text()} leaves less "
            f"than three up to {largest(graph)}. Allow larger ones, or export fixed sizes: graph.at(...)."
        )
    return distinct


def largest_permitted(graph: CapturedGraph) -> dict[str, int]:
    """Return the largest sizes for which the guards hold."""
    return _samples(graph)[0] if graph.size_guards else largest(graph)


def _permitted(graph: CapturedGraph, sizes: Mapping[str, int]) -> dict[str, int] | None:
    """Return the next smaller sizes in the ranges for which the guards hold."""
    floor = {name: min(size, max(graph.symbols[name].least, 2)) for name, size in sizes.items()}
    for step in range(min(max(sizes.values()), _STEPS)):
        smaller = {name: max(size - step, floor[name]) for name, size in sizes.items()}
        if graph.permits(smaller):
            return smaller
    return None


def _all_samples(graph: CapturedGraph, most: Mapping[str, int]) -> list[dict[str, int]]:
    """Return sizes to compare, up to ``most``."""
    small = [name for name, size in most.items() if size < 4]
    if small:
        raise errors.LoweringError(
            f"the target c compares programs of several sizes; the largest {small[0]} is {most[small[0]]}. "
            "Allow 4 or more, or export fixed sizes."
        )
    least = {name: graph.symbols[name].least for name in most}
    middle = {name: max((size + 2) // 2, (least[name] + size + 1) // 2) for name, size in most.items()}
    near = {name: max(size - 1, least[name]) for name, size in most.items()}
    alone = [{**most, name: size} for part in (near, middle) for name, size in part.items()]
    return [
        dict(most),
        *alone,
        middle,
        {name: max(2 + (size > 4), least[name]) for name, size in most.items()},
    ]


def build_sized(graph: CapturedGraph) -> tuple[Program, Sizes]:
    """Return the program for the largest sizes with expressions of sizes in its steps."""
    samples = _samples(graph)
    graphs = [prepared(_at(graph, sizes)) for sizes in samples]
    spell_numbers(graphs, samples)
    programs = [program_of(each, numbers) for each, numbers in zip(graphs, _changing(graphs), strict=True)]
    _check_small(graph, samples)
    first, fitter = programs[0], _Fitter(samples)
    for sizes, other in zip(samples[1:], programs[1:], strict=True):
        _compare(first, other, sizes)
    for position, steps in enumerate(zip(*(p.steps for p in programs), strict=True)):
        first.steps[position] = fitter.step(steps)
    arguments = [[_arguments(p) for p in programs], [[p.views[r] for r in p.graph.outputs] for p in programs]]
    inputs, outputs = (fitter.shapes(list(zip(*views, strict=True))) for views in arguments)
    places = {
        symbol: (first.arguments.index(label), axis)
        for label, axes in graph.dynamic.items()
        for axis, symbol in axes.items()
    }
    ranges = {name: (symbol.least, samples[0][name]) for name, symbol in graph.symbols.items()}
    return first, Sizes(ranges, places, inputs, outputs, graph.size_guards)


def _at(graph: CapturedGraph, sizes: Mapping[str, int]) -> CapturedGraph:
    """Return the graph for these sizes, in which calls whose shape follows from them are never constants."""
    try:
        result = graph.at(**sizes)
    except errors.ShapeError as error:
        raise errors.LoweringError(
            f"the target c writes one program for a whole range of sizes, and {error} Set another range: "
            'graph.symbols["NAME"] = graph.symbols["NAME"].bounded(LEAST, MOST).'
        ) from error
    pairs = zip(graph.nodes, result.nodes, strict=True)
    result.symbolic = {own: {} for node, own in pairs if node in graph.symbolic}
    return result


def _changing(graphs: Sequence[CapturedGraph]) -> list[dict[Node, set[Place]]]:
    """Return, for each of ``graphs``, the calls whose integers are not the same in all, and where."""
    result: list[dict[Node, set[Place]]] = [{} for _ in graphs]
    for nodes in zip(*(graph.nodes for graph in graphs), strict=False):
        for place in _integers(nodes[0]):
            if any(place not in _integers(n) or _number(n, place) != _number(nodes[0], place) for n in nodes):
                for own, node in zip(result, nodes, strict=True):
                    own.setdefault(node, set()).add(place)
    return result


def _integers(node: Node) -> list[Place]:
    """Return where a call has integers."""
    if node.kind != "call":
        return []
    places: list[Place] = [i for i, a in enumerate(node.args) if a.__class__ is int]
    return places + [name for name, value in node.attrs.items() if value.__class__ is int]


def _number(node: Node, place: Place) -> int:
    return node.attrs[place] if isinstance(place, str) else node.args[place]


def _check_small(graph: CapturedGraph, samples: Sequence[Mapping[str, int]]) -> None:
    """Raise LoweringError unless the graph holds for sizes below the samples: it would read out of bounds."""
    for name, symbol in graph.symbols.items():
        for size in range(symbol.least, min(sizes[name] for sizes in samples)):
            for sizes in (samples[0], samples[-1]):
                if graph.permits({**sizes, name: size}):
                    _at(graph, {**sizes, name: size})


def guard_text(guard: SizeGuard) -> str:
    """Return a guard as a C condition."""
    left, right = _size_text(guard.left), _size_text(guard.right)
    return f"({left} {COMPARISONS[guard.question]} {right}) == {int(guard.answer)}"


def _size_text(size: int | Expression) -> str:
    """Return a size in C, where quotients are rounded down as in Python."""
    if not isinstance(size, Expression):
        if abs(size) >= 1 << 31:
            raise errors.LoweringError(f"the target c cannot compare a size with {size}.")
        return str(size)
    if size.function == "symbol":
        return f"n_{size}"
    left, right = (_size_text(arg) for arg in size.args if not isinstance(arg, str))
    rest = f"(({left} % {right} + {right}) % {right})"
    if size.function == "mod":
        return rest
    if size.function == "floordiv":
        return f"(({left} - {rest}) / {right})"
    return f"({left} {OPERATORS[size.function]} {right})"


def _arguments(program: Program) -> list[View]:
    known = {n.label: program.views[n.out()] for n in program.graph.inputs if n.value is None}
    return [known[name] for name in program.arguments]


def _refuse(what: str, sizes: Mapping[str, int]) -> errors.LoweringError:
    given = ", ".join(f"{name} = {size}" for name, size in sizes.items())
    return errors.LoweringError(
        f"the target c has one program for all sizes only where numbers change with them; {what} at {given}. "
        "Export fixed sizes: graph.at(...)."
    )


def _compare(first: Program, other: Program, sizes: Mapping[str, int]) -> None:
    """Raise LoweringError unless the programs differ in numbers of their steps only."""
    functions = [[s.function for s in p.steps] for p in (first, other)]
    if functions[0] != functions[1] or first.functions != other.functions:
        raise _refuse("it has different steps", sizes)
    if first.scalar_lines != other.scalar_lines or first.conditions != other.conditions:
        raise _refuse("it computes different numbers", sizes)
    for own, its in zip(first.buffers(), other.buffers(), strict=True):
        if (own.kind, own.ctype) != (its.kind, its.ctype) or its.count > own.count:
            raise _refuse("it needs more memory, or memory of another type,", sizes)
        if own.kind in ("weight", "state") and not np.array_equal(own.memory, its.memory, equal_nan=False):
            raise _refuse("a constant table differs", sizes)


class _Fitter:
    """Finds the expressions of numbers that were seen at several sizes."""

    def __init__(self, samples: Sequence[Mapping[str, int]]) -> None:
        self.samples = samples

    def number(self, values: Sequence[int]) -> str:
        """Return the C text that gives ``values``."""
        found = fit_sizes(values, self.samples)
        if found is None:
            raise _refuse(f"no expression of them gives {', '.join(map(str, values))}", self.samples[0])
        text = str(found)
        if text.lstrip("-").isdigit():
            return text
        return "(" + _SYMBOL.sub(lambda m: f"n_{m.group()}", text.replace("//", "/")) + ")"

    def step(self, steps: Sequence[Step]) -> Step:
        """Return a step with the expressions in its arguments."""
        args = tuple(self.argument(values) for values in zip(*(s.args for s in steps), strict=True))
        return replace(steps[0], args=args)

    def argument(self, values: Sequence[StepArgument]) -> StepArgument:
        """Return one argument of a step."""
        first = values[0]
        if isinstance(first, Pointer):
            offsets = [v.view.offset for v in values if isinstance(v, Pointer)]
            return first if len(set(offsets)) == 1 else replace(first, offset=self.number(offsets))
        if isinstance(first, str):
            return self.text([str(v) for v in values])
        if len(set(values)) == 1:
            return first
        return self.number([int(v) for v in values if isinstance(v, int)])

    def text(self, texts: Sequence[str]) -> str:
        """Return a text with the expressions in place of its numbers."""
        if len(set(texts)) == 1:
            return texts[0]
        if len({_NUMBER.sub("#", t) for t in texts}) > 1:
            raise _refuse(f"a number is {texts[0]} or {texts[-1]}", self.samples[-1])
        numbers = zip(*(_NUMBER.findall(t) for t in texts), strict=True)
        found = iter([self.number([int(n) for n in each]) for each in numbers])
        return _NUMBER.sub(lambda _: next(found), texts[0])

    def shapes(self, views: Sequence[Sequence[View]]) -> dict[tuple[int, int], str]:
        """Return the sizes that change, of arguments or results."""
        changed = {}
        for position, same in enumerate(views):
            for axis, sizes in enumerate(zip(*(v.shape for v in same), strict=True)):
                if len(set(sizes)) > 1:
                    changed[position, axis] = self.number(sizes)
        return changed
