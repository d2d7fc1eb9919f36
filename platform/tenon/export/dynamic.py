"""Sizes that may change: capture at several sizes, and write the integers that differ as expressions.

``merged`` compares graphs of the same function at other sizes. They must have the same ops; integers in
shapes, arguments and attrs that differ become expressions of the symbols, which ``CapturedGraph.symbolic``
holds. ``CapturedGraph.at`` substitutes sizes for the symbols.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

import numpy as np

from tenon.errors import ArgumentError, CaptureError, LoweringError, ShapeError, TenonError
from tenon.export import sizes
from tenon.export.axes import Axes, Shapes, axes_of, named_axes, symbol_names, symbol_sizes
from tenon.export.captured import CapturedGraph, Symbol
from tenon.export.places import Path, integers, put
from tenon.export.signature import Leaf
from tenon.export.sizes import Expression, Size, Sizes
from tenon.export.spelled_numbers import spell_numbers
from tenon.export.symbolic.samples import sample_sizes
from tenon.graph.graph import Node, NodeArgument, Ref
from tenon.tensors.creation.create import wrap

#: Sizes up to this one are tried where the graph does not hold for 0.
_MOST_TRIED = 32


def merged(graphs: Sequence[CapturedGraph], samples: Sequence[Sizes]) -> CapturedGraph:
    """Return the first of ``graphs``, with the integers that differ among them as expressions.

    CaptureError with the line at which they first differ in anything else.
    """
    first = graphs[0]
    positions = [{node: i for i, node in enumerate(graph.nodes)} for graph in graphs]
    symbolic: dict[Node, dict[Path, Expression]] = {}
    fitted: dict[tuple[int, ...], Size | None] = {}
    for nodes in zip(*(graph.nodes for graph in graphs), strict=False):
        _compare_kinds(nodes)
        own = [dict(integers(node)) for node in nodes]
        references = [_references(node, known) for node, known in zip(nodes, positions, strict=True)]
        if any(set(each) != set(own[0]) for each in own) or any(r != references[0] for r in references):
            _refuse(nodes, "its arguments are others")
        for path in own[0]:
            values = tuple(each[path] for each in own)
            if len(set(values)) == 1:
                continue
            if values not in fitted:
                fitted[values] = sizes.fit(values, samples)
            size = fitted[values]
            if not isinstance(size, Expression):
                observed = ", ".join(f"{v} at {dict(s)}" for v, s in zip(values, samples, strict=True))
                _refuse(nodes, f"no simple expression gives {observed}")
            symbolic.setdefault(nodes[0], {})[path] = size
    if len({len(graph.nodes) for graph in graphs}) > 1:
        longest = max(graphs, key=len)
        extra = longest.nodes[min(map(len, graphs))]
        raise CaptureError(
            f"the function runs {' and '.join(str(len(g.calls)) for g in graphs[:2])} ops at other sizes: "
            f"{extra.name} at {extra.where or 'an unknown place'} has no counterpart. Only shapes may depend"
            f" on "
            "sizes, not what is computed."
        )
    roots = [
        [(known[r.node], r.index) for r in g.roots()] for g, known in zip(graphs, positions, strict=True)
    ]
    if any(each != roots[0] for each in roots):
        raise CaptureError("the function returns other values at other sizes.")
    first.symbolic = symbolic
    return first


def _compare_kinds(nodes: Sequence[Node]) -> None:
    """Raise CaptureError unless the nodes are the same but for integers."""
    first = nodes[0]
    for other in nodes[1:]:
        if (first.kind, first.op, first.function, first.label) != (
            other.kind, other.op, other.function, other.label,
        ):  # fmt: skip
            _refuse(nodes, f"{other.name} {other.label} is there instead".replace("  ", " "))
        if first.kind == "constant" and not _same_bytes(first.value, other.value):
            _refuse(nodes, "a tensor made from Python data has other values. Make it of an argument by ops")
        if [a.dtype for a in first.avals] != [a.dtype for a in other.avals]:
            _refuse(nodes, "it has another dtype")


def _same_bytes(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def _refuse(nodes: Sequence[Node], why: str) -> NoReturn:
    node = nodes[0]
    place = f"{node.label or node.name}{f' in {node.module}' if node.module else ''}"
    raise CaptureError(
        f"{place} at {node.where or 'an unknown place'} depends on the sizes in a way that"
        f" no expression describes: {why}. Leave that size out of dynamic=."
    )


def _references(node: Node, positions: Mapping[Node, int]) -> object:
    """Return a node without its integers, in comparable form."""

    def form(value: NodeArgument) -> object:
        if value.__class__ is Ref:
            return ("ref", positions[value.node], value.index)
        if value.__class__ is int:
            return int
        if isinstance(value, tuple | list):
            return (type(value), *map(form, value))
        if isinstance(value, dict):
            return tuple((key, form(each)) for key, each in value.items())
        if isinstance(value, slice):
            return (slice, form(value.start), form(value.stop), form(value.step))
        return repr(value)

    ranks = [len(aval.shape) for aval in node.avals]
    return [form(node.args), form(node.attrs), ranks]


def transformed(
    graph: CapturedGraph, transform: Callable[[CapturedGraph], CapturedGraph], *, spell: bool = False
) -> CapturedGraph:
    """Apply ``transform``, which takes a graph of plain integers, to a graph with symbols.

    With ``spell``, floats that the results compute from sizes become calls, see ``spelled_numbers.py``.
    """
    if not graph.symbols:
        return transform(graph)
    axes = axes_of(graph)
    samples = next(sample_sizes(graph.symbols, axes), None)
    if samples is None:
        ranges = ", ".join(f"{name} from {s.least} to {s.most}" for name, s in graph.symbols.items())
        raise LoweringError(
            f"{ranges}: there are fewer than three sizes above 1 to compare. Widen the range, or write the "
            "graph at given sizes: graph.at(...)."
        )
    results = [transform(graph.at(**sizes)) for sizes in samples]
    if spell:
        spell_numbers(results, samples)
    return at_example(merged(results, samples), graph.symbols, axes, graph.example)


def at_example(
    graph: CapturedGraph,
    symbols: Mapping[str, Symbol],
    axes: Axes,
    example: list[np.ndarray],
) -> CapturedGraph:
    """Return ``graph``, which has expressions of ``symbols``, with the integers of their example."""
    graph.symbols, graph.example = dict(symbols), example
    graph.dynamic = named_axes(axes)
    for node in graph.arguments:
        declared = axes.get(node.label, {})
        if declared:
            graph.symbolic[node] = {("shape", 0, axis): size for axis, size in declared.items()}
    example_sizes = {name: symbol.example for name, symbol in symbols.items()}
    for node, paths in graph.symbolic.items():
        put(node, {path: size.at(example_sizes) for path, size in paths.items()})
    graph.verify()
    return graph


def from_least_sizes(graph: CapturedGraph) -> CapturedGraph:
    """Start the range of each symbol at the least size for which the graph holds; return the graph.

    That is 0, unless code needs elements: ``x[:2]`` of less than two rows has another shape.
    """
    for name, symbol in graph.symbols.items():
        sizes = range(min(symbol.example, _MOST_TRIED))
        least = next((size for size in sizes if _holds(graph, name, size)), symbol.example)
        graph.symbols[name] = symbol.bounded(least, symbol.most)
    return graph


def _holds(graph: CapturedGraph, name: str, size: int) -> bool:
    try:
        graph.at(**{name: size})
    except TenonError:
        return False
    return True


def example_symbols(axes: Axes, shapes: Shapes) -> dict[str, Symbol]:
    """Return the symbols of ``axes`` with their sizes in examples of these shapes."""
    try:
        example, _ = symbol_sizes(axes, shapes)
    except ShapeError as error:
        raise ArgumentError(f"the examples contradict the sizes that may change: {error}") from None
    return {name: Symbol(example[name]) for name in symbol_names(axes)}


def resized(names: Sequence[str], leaves: Sequence[Leaf], axes: Axes, given: Sizes) -> list[Leaf]:
    """Return the arguments at other sizes: their elements repeat."""
    result = list(leaves)
    for position, name in enumerate(names):
        for axis, size in axes.get(name, {}).items():
            raw = result[position].raw
            indices = np.arange(size.at(given)) % max(raw.shape[axis], 1)
            if not raw.shape[axis]:
                raise ArgumentError(f"axis {axis} of the example {name!r} is empty: pass one that is not.")
            result[position] = wrap(np.take(raw, indices, axis), device="cpu")
        if name in axes and leaves[position].requires_grad:
            result[position].requires_grad_()
    return result
