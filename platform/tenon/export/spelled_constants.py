"""Constants whose shape depends on sizes, written as ops: filled arrays, ranges, and triangular masks.

``tenon.arange(length)`` and the mask of causal attention are arrays that Python creates, so that each capture
has those of its own size. ``spell_constants`` replaces them, in several captures of one function, by the same
ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from tenon.export.captured import CapturedGraph
from tenon.graph.cluster import Namespace, Value
from tenon.graph.graph import Node
from tenon.graph.passes.decompose import Calls

#: The parameters of a constant that are independent of sizes.
Pattern: TypeAlias = tuple[Any, ...]  # a name and numbers


def spell_constants(graphs: Sequence[CapturedGraph]) -> None:
    """Replace constants that differ among ``graphs`` but have one pattern by calls that compute them."""
    position = 0
    while all(position < len(graph.nodes) for graph in graphs):
        nodes = [graph.nodes[position] for graph in graphs]
        position += 1
        if any(node.kind != "constant" for node in nodes) or _same(nodes):
            continue
        for recognise, spell in _PATTERNS:
            patterns = [recognise(node.value) for node in nodes]
            if patterns[0] is not None and all(p == patterns[0] for p in patterns):
                for graph, node in zip(graphs, nodes, strict=True):
                    _replace(graph, node, patterns[0], spell)
                break


def _same(nodes: Sequence[Node]) -> bool:
    first = nodes[0].value
    return all(n.value.shape == first.shape and n.value.tobytes() == first.tobytes() for n in nodes)


def _replace(graph: CapturedGraph, node: Node, pattern: Pattern, spell: Spell) -> None:
    calls = Calls(node)
    source = calls.operand(graph.arguments[0].out())
    value = spell(Namespace(calls), source, node.value, pattern)
    at = graph.nodes.index(node)
    graph.nodes[at : at + 1] = calls.nodes
    graph.replace({node.out(): calls.ref(value)})


#: Returns the parameters of the pattern of an array, or None if it does not match.
Recognise: TypeAlias = Callable[[np.ndarray], "Pattern | None"]
#: Computes an array of that pattern by functions of a namespace, from any value.
Spell: TypeAlias = Callable[[Namespace, Any, np.ndarray, Pattern], Value]


def _fill(array: np.ndarray) -> Pattern | None:
    if not array.size or (array.dtype.kind not in "fiub" and array.dtype.kind != "V"):
        return None
    first = array.reshape(-1)[:1].tobytes()
    same = array.tobytes() == first * array.size
    return ("fill", array.ndim, array.reshape(-1)[0].item(), array.dtype.str) if same else None


def _filled(f: Namespace, x: Value, array: np.ndarray, pattern: Pattern) -> Value:
    return f.new_full(x, shape=array.shape, value=pattern[2], dtype=array.dtype)


def _range(array: np.ndarray) -> Pattern | None:
    """Recognise ``start + step * i`` along one axis, the others of size 1."""
    axes = [axis for axis, size in enumerate(array.shape) if size != 1]
    if len(axes) != 1 or array.dtype.kind not in "if" or array.size < 2:
        return None
    flat = array.reshape(-1)
    start, step = flat[0].item(), (flat[1] - flat[0]).item()
    expected = np.asarray(start + step * np.arange(array.size), array.dtype)
    return ("range", array.ndim, axes[0], start, step) if np.array_equal(flat, expected) else None


def _ranged(f: Namespace, x: Value, array: np.ndarray, pattern: Pattern) -> Value:
    _, _, axis, start, step = pattern
    ones = f.new_full(x, shape=array.shape, value=1, dtype=array.dtype)
    counted = f.sub(f.cumsum(ones, axis=axis), 1)
    scaled = counted if step == 1 else f.mul(counted, step)
    return scaled if start == 0 else f.add(scaled, start)


def _triangle(array: np.ndarray) -> Pattern | None:
    """Recognise two values, one where ``column - row > k`` and the other elsewhere, in the last two axes."""
    if array.ndim < 2 or array.size != array.shape[-1] * array.shape[-2] or array.shape[-1] < 2:
        return None
    if array.dtype.kind not in "fiub":
        return None
    height, width = array.shape[-2:]
    matrix = array.reshape(height, width)
    above, below = matrix[0, -1], matrix[-1, 0]
    if above == below or above != above or below != below:
        return None
    offsets = np.arange(width).reshape(1, -1) - np.arange(height).reshape(-1, 1)
    k = int(offsets[matrix == below].max())
    if not np.array_equal(matrix, np.where(offsets > k, above, below)):
        return None
    return ("triangle", array.ndim, k, above.item(), below.item(), array.dtype.str)


def _triangular(f: Namespace, x: Value, array: np.ndarray, pattern: Pattern) -> Value:
    _, _, k, above, below, _ = pattern
    rows, columns = (
        f.sub(f.cumsum(f.new_full(x, shape=shape, value=1, dtype=np.dtype(np.int64)), axis=axis), 1)
        for shape, axis in (((array.shape[-2], 1), 0), ((1, array.shape[-1]), 1))
    )
    is_above = f.gt(f.sub(columns, rows), k)
    parts = (
        f.new_full(x, shape=array.shape[-2:], value=value, dtype=array.dtype) for value in (above, below)
    )
    matrix = f.where(is_above, *parts)
    return matrix if array.ndim == 2 else f.reshape(matrix, shape=array.shape)


_PATTERNS: tuple[tuple[Recognise, Spell], ...] = (
    (_fill, _filled),
    (_range, _ranged),
    (_triangle, _triangular),
)
