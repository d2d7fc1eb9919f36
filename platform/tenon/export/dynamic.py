"""Sizes that may change: capture at several sizes, and write the integers that differ as expressions.

``merged`` compares graphs of the same function at other sizes. They must have the same ops; integers in
shapes, arguments and attrs that differ become expressions of the symbols, which ``CapturedGraph.symbolic``
holds. ``CapturedGraph.at`` substitutes sizes for the symbols.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

import numpy as np

from tenon.errors import ArgumentError, CaptureError, GraphError, LoweringError, ShapeError, TenonError
from tenon.export.axes import Axes, Shapes, axes_of, named_axes, symbol_names, symbol_sizes
from tenon.export.captured import CapturedGraph, Symbol
from tenon.export.places import integers, put
from tenon.export.signature import Leaf, Result
from tenon.export.sizes import Sizes
from tenon.export.spelled_numbers import spell_numbers
from tenon.export.symbolic.fitter import Fitter, NoExpressionError
from tenon.export.symbolic.samples import sample_sizes
from tenon.graph.graph import Node, NodeArgument, Ref
from tenon.random.draws import Draw
from tenon.tensors.creation.create import wrap

#: The largest step between sizes that is tried.
_LARGEST_STEP = 64
#: How often captures are added where several expressions fit.
_MOST_ROUNDS = 12


def merged(
    captured: Sequence[CapturedGraph],
    samples: Sequence[Sizes],
    symbols: Mapping[str, Symbol],
    capture_at: Callable[[Sizes], CapturedGraph],
    prepare: Callable[[list[CapturedGraph], Sequence[Sizes]], None] | None = None,
) -> CapturedGraph:
    """Return the first of the graphs ``captured`` at ``samples``, with integers that differ as expressions.

    Where several expressions fit, ``capture_at`` captures at sizes at which they differ. ``prepare`` is
    called with copies of the graphs before these are compared. CaptureError with the line at which they first
    differ in anything but integers.
    """
    captured, samples, excluded = list(captured), list(samples), list[Sizes]()
    for _ in range(_MOST_ROUNDS):
        graphs = [graph.copy() for graph in captured]
        if prepare is not None:
            prepare(graphs, samples)
        result, undecided = _compared(graphs, samples, symbols, excluded)
        if not undecided:
            return result
        for sizes in undecided:
            try:
                captured.append(capture_at(sizes))
            except Exception:  # of any type: sizes that the function refuses need no expression
                excluded.append(sizes)
            else:
                samples.append(sizes)
    raise CaptureError(
        f"after captures at {len(samples)} sizes, several expressions still fit an argument of an op that"
        f" depends on {' and '.join(samples[0])}. Leave sizes out of dynamic= that the code computes with."
    )


def _compared(
    graphs: Sequence[CapturedGraph],
    samples: Sequence[Sizes],
    symbols: Mapping[str, Symbol],
    excluded: Sequence[Sizes],
) -> tuple[CapturedGraph, list[Sizes]]:
    """Return the first of ``graphs`` with expressions, and sizes that decide between others that fit too."""
    first = graphs[0]
    positions = [{node: i for i, node in enumerate(graph.nodes)} for graph in graphs]
    fitter = Fitter(samples, symbols, excluded, first.decisions)
    for nodes in zip(*(graph.nodes for graph in graphs), strict=False):
        _compare_kinds(nodes)
        own = [{path for path, _ in integers(node)} for node in nodes]
        references = [_references(node, known) for node, known in zip(nodes, positions, strict=True)]
        if any(each != own[0] for each in own) or any(r != references[0] for r in references):
            _refuse(nodes, _difference(nodes, samples))
        try:
            fitter.add(nodes)
        except NoExpressionError as error:
            _refuse_values(nodes, error, samples)
    if len({len(graph.nodes) for graph in graphs}) > 1:
        longest = max(graphs, key=len)
        extra = longest.nodes[min(map(len, graphs))]
        raise CaptureError(
            f"the function runs other ops at other sizes: {extra.name} at "
            f"{extra.where or 'an unknown place'} has no counterpart. Only shapes may depend on sizes, not "
            "what is computed. Leave sizes out of dynamic= by which the function decides what to compute."
        )
    roots = [
        [(known[r.node], r.index) for r in g.roots()] for g, known in zip(graphs, positions, strict=True)
    ]
    if any(each != roots[0] for each in roots):
        raise CaptureError("the function returns other values at other sizes.")
    plain = [[r for r in graph.signature.returned if not isinstance(r, Result)] for graph in graphs]
    for other, sizes in zip(plain, samples, strict=True):
        if other == plain[0]:
            continue
        raise CaptureError(
            f"the function returns {plain[0]!r:.80} for {_text(samples[0])} and {other!r:.80} for "
            f"{_text(sizes)}: a graph returns the same numbers in every run. Return a tensor, as "
            "torch.tensor(x.shape[0]), or leave that size out of dynamic=."
        )
    first.symbolic = fitter.symbolic
    return first, fitter.undecided


def _compare_kinds(nodes: Sequence[Node]) -> None:
    """Raise CaptureError unless the nodes are the same but for integers."""
    first = nodes[0]
    for other in nodes[1:]:
        if (first.kind, first.op, first.function, first.label) != (
            other.kind, other.op, other.function, other.label,
        ):  # fmt: skip
            _refuse(nodes, f"{other.name} {other.label} is there instead".replace("  ", " "))
        if first.kind == "constant" and not _same_bytes(first.value, other.value):
            _refuse(
                nodes,
                "a tensor made from Python data has other values at other sizes. Compute it by ops, as of "
                "torch.arange(x.shape[0]), whose length may be any",
            )
        if [a.dtype for a in first.avals] != [a.dtype for a in other.avals]:
            _refuse(nodes, "it has another dtype")


def _difference(nodes: Sequence[Node], samples: Sequence[Sizes]) -> str:
    """Return how the arguments of the same call differ at other sizes."""
    first = nodes[0]
    for number, other in enumerate(nodes[1:], 1):
        pairs = [
            (f"argument {i}", a, b) for i, (a, b) in enumerate(zip(first.args, other.args, strict=False))
        ]
        pairs += [(name, value, other.attrs.get(name)) for name, value in first.attrs.items()]
        for name, a, b in pairs:
            if a.__class__ is not Ref and b.__class__ is not Ref and repr(a) != repr(b):
                at_first, at_other = _text(samples[0]), _text(samples[number])
                return f"its {name} is {a!r:.60} for {at_first} and {b!r:.60} for {at_other}"
    return "it reads other values at other sizes"


def _same_bytes(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def _refuse(nodes: Sequence[Node], why: str) -> NoReturn:
    node = nodes[0]
    place = f"{node.label or node.name}{f' in {node.module}' if node.module else ''}"
    raise CaptureError(
        f"{place} at {node.where or 'an unknown place'} depends on the sizes in a way that"
        f" no expression describes: {why}. Leave that size out of dynamic=."
    )


def _refuse_values(nodes: Sequence[Node], error: NoExpressionError, samples: Sequence[Sizes]) -> NoReturn:
    """Raise CaptureError for an integer that no expression gives."""
    base, values = samples[0], error.values
    observed = ", ".join(f"{v} at {_text(s)}" for v, s in zip(values, samples, strict=True))
    changing = [
        name
        for name in base
        if any(
            v != values[0] and {**s, name: 0} == {**base, name: 0}
            for v, s in zip(values, samples, strict=True)
        )
    ]
    node, names = nodes[0], changing or list(base)
    kind, *rest = error.path
    place = f"size {rest[1]} of output {rest[0]}" if kind == "shape" else f"{kind}{rest}"
    inside = f" in module {node.module!r}" if node.module else ""
    free = " and ".join(names)
    raise CaptureError(
        f"{node.label or node.name} at {node.where or 'an unknown place'}{inside} depends on the sizes "
        f"in a way that no expression describes: none that was tried gives its {place}, which is {observed}. "
        f"It follows from {free}: compute it by +, -, *, // and % of sizes and numbers, declare a size that "
        f"is always a multiple as one ('8*{names[0]}'), or leave {free} out of dynamic=."
    )


def _text(sizes: Sizes) -> str:
    return ", ".join(f"{name} = {size}" for name, size in sizes.items())


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
        if isinstance(value, Draw):
            numbers = form(value.shape), form(value.arguments)
            return (value.function, value.dtype, *numbers, value.arrays, value.order, id(value.generator))
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
    axes, symbols = axes_of(graph), graph.symbols
    samples = _permitted(graph, axes)
    if samples is None:  # shapes and calls beyond the range are the same, or the graph does not hold there
        graph = graph.copy()
        graph.symbols = {name: each.bounded(each.least, None) for name, each in symbols.items()}
        samples = _permitted(graph, axes)
        if samples is not None:
            try:
                for sizes in samples:
                    graph.at(**sizes)
            except ShapeError:
                samples = None
    if samples is None:
        ranges = ", ".join(f"{name} from {s.least} to {s.most}" for name, s in symbols.items())
        guarded = f" for which {graph.size_guards[0].text()}" if graph.size_guards else ""
        raise LoweringError(
            f"{ranges}: there are fewer than three sizes above 1 to compare{guarded}. Widen the range, or "
            "write the graph at given sizes: graph.at(...)."
        )

    def at(sizes: Sizes) -> CapturedGraph:
        return transform(graph.at(**sizes))

    graphs = [at(sizes) for sizes in samples]
    result = merged(graphs, samples, graph.symbols, at, spell_numbers if spell else None)
    result.size_guards = list(graph.size_guards)
    return at_example(result, symbols, axes, graph.example)


def _permitted(graph: CapturedGraph, axes: Axes) -> Sequence[Sizes] | None:
    """Return sizes to compare that the guards permit; None if the ranges have too few."""
    found = (each for each in sample_sizes(graph.symbols, axes) if all(map(graph.permits, each)))
    return next(found, None)


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
    try:
        graph.verify()
    except GraphError as error:
        raise CaptureError(
            "the expressions that were found for sizes do not hold for the example's "
            f"({_text(example_sizes)}): "
            f"{error} Pass an example of other sizes, declare a size that is always a multiple as one "
            "(as '8*width'), or leave sizes out of dynamic=."
        ) from error
    return graph


def from_least_sizes(graph: CapturedGraph) -> CapturedGraph:
    """Start the range of each symbol at the least size for which the shapes hold; return the graph.

    That is 0, unless code needs elements: ``x[:2]`` of less than two rows has another shape.
    """
    shapes = graph.copy()
    shapes.size_guards = []  # their errors say more than a range
    for name, symbol in graph.symbols.items():
        graph.symbols[name] = symbol.bounded(_least(shapes, name, symbol.example), symbol.most)
    return graph


def _least(graph: CapturedGraph, name: str, example: int) -> int:
    """Return the least size: by bisection among those that differ from the example's by a multiple of a step.

    The step is 4, for example, if the graph holds for multiples of 4 only.
    """
    if _holds(graph, name, 0):
        return 0
    steps = range(1, _LARGEST_STEP + 1)
    step = next((step for step in steps if _holds(graph, name, example + step)), None)
    if step is None:
        return example
    held, failed = 0, example // step + 1  # in steps below the example
    while failed - held > 1:
        middle = (held + failed) // 2
        if _holds(graph, name, example - middle * step):
            held = middle
        else:
            failed = middle
    return example - held * step


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
