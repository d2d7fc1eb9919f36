"""Floats that Python computes from sizes, written as ops: ``1 / batch``, ``n / (n - 1)``, ``sqrt(length)``.

Each capture has the number of its own size, and so has each graph that is lowered at one size.
``spell_numbers`` replaces it, in several of these graphs, by the same calls, which compute it from a size in
float64. Whole numbers that were computed from sizes, as ``n // 2`` beside a tensor of floats, become
integers, whose expression is found with those of all integers; not those that a table has for sizes.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tenon.export.captured import CapturedGraph
from tenon.export.sizes import Expression, Sizes, at, fit, symbol
from tenon.graph.cluster import Namespace, Value
from tenon.graph.graph import Node, Ref
from tenon.graph.passes.decompose import Calls

#: The factors that are tried where the size is no product of symbols: that of a momentum, and none.
_FACTORS = (1.0, 0.1, 0.01)
#: The largest whole number that is taken for a size: floats have all integers up to it.
_LARGEST_SIZE = 2.0**53
#: How far a formula may be off, relative to the number.
_CLOSE = 1e-11
#: The same for floats that were rounded to 32 bits.
_CLOSE_ROUNDED = 1e-6
#: The largest denominators of fractions that are tried, one after the other.
_DENOMINATORS = (16, 1000, 10**5)

#: The ops of which ``Formula.spell`` makes its calls.
SPELLED_BY = frozenset({"new_full", "mul", "div", "add", "sqrt", "cast"})

#: What is applied to ``offset + scale * q``: its name, and its inverse.
_OUTER: dict[str, Callable[[float], float]] = {
    "number": lambda v: v,
    "reciprocal": lambda v: 1 / v,
    "sqrt": lambda v: v * v,
    "rsqrt": lambda v: 1 / (v * v),
}


@dataclass(frozen=True, slots=True)
class Formula:
    """``outer(offset + scale * size)``, or ``outer(offset + scale / size)`` if it ``divides``."""

    outer: str
    offset: float
    scale: float
    size: Expression
    divides: bool

    def at(self, sizes: Sizes) -> float:
        """Return the number at these sizes of the symbols; infinity if it divides by zero."""
        size = self.size.at(sizes)
        try:
            inner = self.offset + (self.scale / size if self.divides else self.scale * size)
            root = math.sqrt(inner) if self.outer in ("sqrt", "rsqrt") else inner
            return 1 / root if self.outer in ("reciprocal", "rsqrt") else root
        except (ZeroDivisionError, ValueError):
            return math.inf

    def spell(self, f: Namespace, source: Value, dtype: np.dtype, size: int) -> Value:
        """Compute it by functions of ``f``, from any value and the size of this capture."""
        kind = np.dtype(np.float64)
        number = f.new_full(source, shape=(), value=size, dtype=kind)
        result = f.div(self.scale, number) if self.divides else f.mul(number, self.scale)
        result = f.add(result, self.offset) if self.offset else result
        if self.outer in ("sqrt", "rsqrt"):
            result = f.sqrt(result)
        if self.outer in ("reciprocal", "rsqrt"):
            result = f.div(1.0, result)
        return result if dtype == kind else f.cast(result, dtype=dtype)


def spell_numbers(graphs: Sequence[CapturedGraph], samples: Sequence[Sizes]) -> None:
    """Replace float arguments that differ among ``graphs``, and follow a formula of sizes, by calls."""
    position = 0
    while all(position < len(graph.nodes) for graph in graphs):
        nodes = [graph.nodes[position] for graph in graphs]
        position += 1
        if any(node.kind != "call" or node.op is not nodes[0].op for node in nodes):
            continue
        for index in range(min(len(node.args) for node in nodes)):
            numbers = [node.args[index] for node in nodes]
            if any(number.__class__ is not float for number in numbers) or len(set(numbers)) == 1:
                continue
            if _are_sizes(numbers) and all(
                index in graph.traced_arguments.get(node, ())
                for graph, node in zip(graphs, nodes, strict=True)
            ):
                spells = [functools.partial(_spell_size, size=int(number)) for number in numbers]
            else:
                formula = fit_float(numbers, samples)
                if formula is None:
                    continue
                spells = [functools.partial(formula.spell, size=formula.size.at(each)) for each in samples]
            added = [
                _replace(graph, node, index, spell)
                for graph, node, spell in zip(graphs, nodes, spells, strict=True)
            ]
            position += added[0]


def _are_sizes(numbers: Sequence[float]) -> bool:
    return all(number.is_integer() and abs(number) <= _LARGEST_SIZE for number in numbers)


def _spell_size(f: Namespace, source: Value, dtype: np.dtype, size: int) -> Value:
    """Compute a number that is an integer, from any value."""
    kind = np.dtype(np.float64)
    number = f.new_full(source, shape=(), value=size, dtype=kind)
    return number if dtype == kind else f.cast(number, dtype=dtype)


def _replace(graph: CapturedGraph, node: Node, index: int, spell: Callable[..., Value]) -> int:
    """Put calls that compute a number by ``spell`` before ``node``, as its argument; return how many."""
    calls = Calls(node)
    source = calls.operand(graph.arguments[0].out())
    floats = [a for a in node.avals if a.dtype.kind in "fV"]
    operands = [arg.aval for arg in node.args if arg.__class__ is Ref]
    dtype = (floats or operands)[0].dtype
    value = spell(Namespace(calls), source, dtype=dtype)
    at_node = graph.nodes.index(node)
    graph.nodes[at_node:at_node] = calls.nodes
    node.args = (*node.args[:index], calls.ref(value), *node.args[index + 1 :])
    return len(calls.nodes)


def fit_float(values: Sequence[float], samples: Sequence[Sizes]) -> Formula | None:
    """Return a formula that gives ``values`` at the sizes ``samples``; None if none is found.

    >>> formula = fit_float([1 / 2, 1 / 3, 1 / 5], [{"batch": 2}, {"batch": 3}, {"batch": 5}])
    >>> formula.outer, formula.scale, formula.size
    ('number', 1.0, batch)
    """
    if not all(map(math.isfinite, values)):
        return None
    rounded = all(float(np.float32(value)) == value for value in values)
    close = _CLOSE_ROUNDED if rounded else _CLOSE
    for formula in _candidates(values, samples, close):
        if all(
            float(np.float32(formula.at(sizes))) == value
            if rounded
            else math.isclose(formula.at(sizes), value, rel_tol=close)
            for value, sizes in zip(values, samples, strict=True)
        ):
            return formula
    return None


def _candidates(values: Sequence[float], samples: Sequence[Sizes], close: float) -> Iterator[Formula]:
    for size in _products(samples):
        for outer in _OUTER:
            for divides in (True, False):
                yield from _linear(values, samples, size, outer, divides, close)
    for factor in _FACTORS:
        yield from _of_integers(values, samples, factor)


def _products(samples: Sequence[Sizes]) -> Iterator[Expression]:
    """Yield the symbols and their products."""
    names = list(samples[0])
    for count in range(1, min(len(names), 4) + 1):
        for chosen in itertools.combinations(names, count):
            product = symbol(chosen[0])
            for name in chosen[1:]:
                product = Expression("mul", (product, symbol(name)))
            yield product


def _linear(
    values: Sequence[float],
    samples: Sequence[Sizes],
    size: Expression,
    outer: str,
    divides: bool,
    close: float,
) -> Iterator[Formula]:
    """Yield the formula of ``size`` through two of the values."""
    sizes = [at(size, each) for each in samples]
    if len(set(sizes)) < 3 or 0 in sizes or 0.0 in values or (outer.endswith("sqrt") and min(values) < 0):
        return
    points = [(1 / s if divides else float(s), _OUTER[outer](v)) for s, v in zip(sizes, values, strict=True)]
    (low, first), (high, last) = min(points), max(points)
    scale = (last - first) / (high - low)
    offset = first - scale * low
    offset = 0.0 if abs(offset) < close * max(abs(first), abs(last)) else offset
    if scale:
        yield Formula(outer, _exact(offset, close), _exact(scale, close), size, divides)


def _exact(number: float, close: float) -> float:
    """Return the fraction of small integers near ``number``, if any: subtractions spoil its last digits."""
    for largest in _DENOMINATORS:
        fraction = Fraction(number).limit_denominator(largest)
        if math.isclose(fraction, number, rel_tol=close):
            return float(fraction)
    return number


def _of_integers(values: Sequence[float], samples: Sequence[Sizes], factor: float) -> Iterator[Formula]:
    """Yield ``factor / size`` and ``factor * size/(size - 1)`` for the size that follows from the values."""
    for outer, offset, scale, sizes in (
        ("number", 0.0, factor, [factor / v if v else 0 for v in values]),
        ("reciprocal", 1 / factor, -1 / factor, [v / (v - factor) if v != factor else 0 for v in values]),
    ):
        whole = [round(size) for size in sizes]
        if any(
            n < 2 or not math.isclose(n, size, rel_tol=1e-9) for n, size in zip(whole, sizes, strict=True)
        ):
            continue
        size = fit(whole, samples)
        if isinstance(size, Expression):
            yield Formula(outer, offset, scale, size, True)
