"""Constants that depend on sizes, written as ops: filled arrays, ranges, masks and identity matrices.

``tenon.arange(length)`` and the mask of causal attention are arrays that Python creates, so that each capture
has those of its own size. ``spell_constants`` replaces them, in several captures of one function, by the same
ops. Numbers in them may depend on sizes too, as those of ``tenon.full((2,), length)``: integers become
arguments whose expressions are found with those of all integers, and other floats are written as ops by
``spelled_numbers.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tenon.export.captured import CapturedGraph
from tenon.export.sizes import Sizes, fit_sum
from tenon.graph.cluster import Namespace, Value
from tenon.graph.graph import Node
from tenon.graph.passes.decompose import Calls

_FLOAT64 = np.dtype(np.float64)


class Found(NamedTuple):
    """An array as a pattern: what has to be the same at all sizes, and numbers that need not be."""

    form: tuple[Any, ...]  # texts and numbers
    numbers: tuple[float, ...]


class Pattern(NamedTuple):
    """A family of arrays: how to recognise one, and to compute it by functions of a namespace."""

    #: Returns the array as this pattern; None if it is no such array.
    recognise: Callable[[np.ndarray], Found | None]
    #: Computes an array like the given one from the source and the numbers. A number is an int if it varies.
    spell: Callable[[Namespace, Value, np.ndarray, Found], Value]
    #: Whether numbers may differ that are not whole.
    takes_floats: bool = False


def spell_constants(graphs: Sequence[CapturedGraph], samples: Sequence[Sizes] | None = None) -> None:
    """Replace constants that differ among ``graphs`` but have one pattern by calls that compute them.

    ``samples`` are the sizes of the symbols in each graph; without them any whole numbers may differ.
    """
    position = 0
    while all(position < len(graph.nodes) for graph in graphs):
        nodes = [graph.nodes[position] for graph in graphs]
        position += 1
        _hold_created(graphs, nodes)
        if any(node.kind != "constant" for node in nodes) or _same(nodes):
            continue
        for pattern in _PATTERNS:
            found = _alike(pattern, [node.value for node in nodes], samples)
            if found is not None:
                for graph, node, own in zip(graphs, nodes, found, strict=True):
                    _replace(graph, node, own, pattern)
                break


def _hold_created(graphs: Sequence[CapturedGraph], nodes: Sequence[Node]) -> None:
    """Turn unnamed tensors whose values differ, as the list of ``x[[0, n - 1]]``, into constants."""
    first = nodes[0]
    if any(node.kind != "input" or node.value is None for node in nodes):
        return
    if all(node.value is first.value for node in nodes):
        return
    for graph, node in zip(graphs, nodes, strict=True):
        if graph.signature.states.get(node.label) != "tensor":
            return
    arrays = [node.value.raw for node in nodes]
    if all(a.shape == arrays[0].shape and a.tobytes() == arrays[0].tobytes() for a in arrays):
        return
    for graph, node, array in zip(graphs, nodes, arrays, strict=True):
        states = {name: kind for name, kind in graph.signature.states.items() if name != node.label}
        graph.signature = replace(graph.signature, states=states)
        node.kind, node.value, node.label = "constant", array, ""


def _same(nodes: Sequence[Node]) -> bool:
    first = nodes[0].value
    return all(n.value.shape == first.shape and n.value.tobytes() == first.tobytes() for n in nodes)


def _alike(
    pattern: Pattern, arrays: Sequence[np.ndarray], samples: Sequence[Sizes] | None
) -> list[Found] | None:
    """Return the arrays as ``pattern``, with numbers that vary as ints where they are whole; None if not.

    A whole number has to be a sum of multiples of sizes: a table may have any other for some sizes.
    """
    found: list[Found] = []
    for array in arrays:
        own = pattern.recognise(array)
        if own is None or (found and own.form != found[0].form):
            return None
        found.append(own)
    columns: list[Sequence[float]] = []
    for values in zip(*(own.numbers for own in found), strict=True):
        if all(value == values[0] for value in values):
            columns.append(values)
        elif all(float(value).is_integer() for value in values):
            whole = [int(value) for value in values]
            if samples is not None and fit_sum(whole, samples) is None:
                return None
            columns.append(whole)
        elif pattern.takes_floats:
            columns.append(values)
        else:
            return None
    return [Found(own.form, tuple(c[i] for c in columns)) for i, own in enumerate(found)]


def _replace(graph: CapturedGraph, node: Node, found: Found, pattern: Pattern) -> None:
    calls = Calls(node)
    source = calls.operand(graph.arguments[0].out())
    value = pattern.spell(Namespace(calls), source, node.value, found)
    at = graph.nodes.index(node)
    graph.nodes[at : at + 1] = calls.nodes
    graph.replace({node.out(): calls.ref(value)})


def _full(f: Namespace, x: Value, shape: Sequence[int], value: float, dtype: np.dtype) -> Value:
    return f.new_full(x, shape=tuple(shape), value=value, dtype=dtype)


def _counted(f: Namespace, x: Value, shape: Sequence[int], axis: int, dtype: np.dtype) -> Value:
    """Return 0, 1, 2 and so on along ``axis``."""
    return f.sub(f.cumsum(_full(f, x, shape, 1, dtype), axis=axis), 1)


def _fill(array: np.ndarray) -> Found | None:
    if not array.size or (array.dtype.kind not in "fiub" and array.dtype.kind != "V"):
        return None
    first = array.reshape(-1)[:1]
    same = array.tobytes() == first.tobytes() * array.size
    value = first[0].item()
    if not same or (value.__class__ is float and not np.isfinite(value)):
        return Found(("fill", array.ndim, array.dtype.str, first.tobytes()), ()) if same else None
    return Found(("fill", array.ndim, array.dtype.str), (value,))


def _filled(f: Namespace, x: Value, array: np.ndarray, found: Found) -> Value:
    value = found.numbers[0] if found.numbers else array.reshape(-1)[0].item()
    return _full(f, x, array.shape, value, array.dtype)


def _scaled(f: Namespace, x: Value, array: np.ndarray, found: Found) -> Value:
    """Compute an array filled with a float that varies: numbers in arguments are spelled, attrs are not."""
    return f.mul(_full(f, x, array.shape, 1, array.dtype), found.numbers[0])


def _float_fill(array: np.ndarray) -> Found | None:
    found = _fill(array)
    return found if found is not None and found.numbers and array.dtype.kind == "f" else None


def _line(array: np.ndarray) -> tuple[int, np.ndarray] | None:
    """Return the only axis whose size is not 1, and the elements along it; None if there are several."""
    axes = [axis for axis, size in enumerate(array.shape) if size != 1]
    return (axes[0], array.reshape(-1)) if len(axes) == 1 and array.size > 1 else None


def _range(array: np.ndarray) -> Found | None:
    """Recognise ``start + step * i`` along one axis, the others of size 1."""
    line = _line(array)
    if line is None or array.dtype.kind not in "if":
        return None
    axis, flat = line
    start, step = flat[0].item(), (flat[1] - flat[0]).item()
    expected = np.asarray(start + step * np.arange(array.size), array.dtype)
    return (
        Found(("range", array.ndim, axis, array.dtype.str), (start, step))
        if np.array_equal(flat, expected)
        else None
    )


def _ranged(f: Namespace, x: Value, array: np.ndarray, found: Found) -> Value:
    start, step = found.numbers
    axis = next(axis for axis, size in enumerate(array.shape) if size != 1)
    counted = _counted(f, x, array.shape, axis, array.dtype)
    scaled = counted if step == 1 else f.mul(counted, step)
    return scaled if start == 0 else f.add(scaled, start)


def _blocks(array: np.ndarray) -> Found | None:
    """Recognise 0, 1, 2 and so on along one axis, each repeated ``count`` times in a row."""
    line = _line(array)
    if line is None or array.dtype.kind != "i":
        return None
    axis, flat = line
    count = int(np.count_nonzero(flat == 0))
    if count < 1 or not np.array_equal(flat, np.arange(array.size) // count):
        return None
    return Found(("blocks", array.ndim, axis, array.dtype.str), (count,))


def _repeated(f: Namespace, x: Value, array: np.ndarray, found: Found) -> Value:
    axis = next(axis for axis, size in enumerate(array.shape) if size != 1)
    return f.floor_divide(_counted(f, x, array.shape, axis, array.dtype), found.numbers[0])


def _points(array: np.ndarray) -> Found | None:
    """Recognise evenly spaced floats along one axis, by the first and the last."""
    line = _line(array)
    if line is None or array.dtype.kind != "f":
        return None
    axis, flat = line
    start, stop = flat[0].item(), flat[-1].item()
    largest = np.finfo(array.dtype).eps * max(abs(start), abs(stop))
    if not np.isfinite(largest):
        return None
    expected = start + (stop - start) / (array.size - 1) * np.arange(array.size)
    close = np.allclose(flat, expected, rtol=0, atol=2 * largest)
    return Found(("points", array.ndim, axis, array.dtype.str), (start, stop)) if close else None


def _spaced(f: Namespace, x: Value, array: np.ndarray, found: Found) -> Value:
    start, stop = found.numbers
    axis = next(axis for axis, size in enumerate(array.shape) if size != 1)
    last = f.maximum(_full(f, x, (), array.size - 1, _FLOAT64), 1)
    share = f.div(_counted(f, x, array.shape, axis, _FLOAT64), last)
    result = f.add(f.mul(share, float(stop)), f.mul(f.sub(1.0, share), float(start)))
    return result if array.dtype == _FLOAT64 else f.cast(result, dtype=array.dtype)


def _matrix(array: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the last two axes, and ``column - row`` of their elements; None if others are not of size 1."""
    if array.ndim < 2 or array.size != array.shape[-1] * array.shape[-2] or array.shape[-1] < 2:
        return None
    if array.dtype.kind not in "fiub":
        return None
    height, width = array.shape[-2:]
    return array.reshape(height, width), np.arange(width).reshape(1, -1) - np.arange(height).reshape(-1, 1)


def _triangle(array: np.ndarray) -> Found | None:
    """Recognise two values, one where ``column - row > k`` and the other elsewhere, in the last two axes."""
    found = _matrix(array)
    if found is None:
        return None
    matrix, offsets = found
    above, below = matrix[0, -1], matrix[-1, 0]
    if above == below or above != above or below != below:
        return None
    k = int(offsets[matrix == below].max())
    if not np.array_equal(matrix, np.where(offsets > k, above, below)):
        return None
    return Found(("triangle", array.ndim, above.item(), below.item(), array.dtype.str), (k,))


def _triangular(f: Namespace, x: Value, array: np.ndarray, found: Found) -> Value:
    _, _, above, below, _ = found.form
    return _two_values(f, x, array, f.gt(_offsets(f, x, array), found.numbers[0]), (above, below))


def _diagonal(array: np.ndarray) -> Found | None:
    """Recognise two values, one where ``column - row == k`` and the other elsewhere, in the last two axes."""
    found = _matrix(array)
    if found is None:
        return None
    matrix, offsets = found
    values = np.unique(matrix)
    for on, off in ((1, 0), (0, 1)) if len(values) == 2 else ():
        places = offsets[matrix == values[on]]
        if (
            places.size
            and (places == places[0]).all()
            and len(places) == np.count_nonzero(offsets == places[0])
        ):
            kept = (values[on].item(), values[off].item())
            return Found(("diagonal", array.ndim, *kept, array.dtype.str), (int(places[0]),))
    return None


def _on_diagonal(f: Namespace, x: Value, array: np.ndarray, found: Found) -> Value:
    _, _, on, off, _ = found.form
    return _two_values(f, x, array, f.eq(_offsets(f, x, array), found.numbers[0]), (on, off))


def _offsets(f: Namespace, x: Value, array: np.ndarray) -> Value:
    """Return ``column - row`` for the last two axes."""
    kind = np.dtype(np.int64)
    height, width = array.shape[-2:]
    return f.sub(_counted(f, x, (1, width), 1, kind), _counted(f, x, (height, 1), 0, kind))


def _two_values(
    f: Namespace, x: Value, array: np.ndarray, condition: Value, values: tuple[float, float]
) -> Value:
    parts = (_full(f, x, array.shape[-2:], value, array.dtype) for value in values)
    matrix = f.where(condition, *parts)
    return matrix if array.ndim == 2 else f.reshape(matrix, shape=array.shape)


_PATTERNS: tuple[Pattern, ...] = (
    Pattern(_fill, _filled),
    Pattern(_range, _ranged),
    Pattern(_blocks, _repeated),
    Pattern(_diagonal, _on_diagonal),
    Pattern(_triangle, _triangular),
    Pattern(_float_fill, _scaled, takes_floats=True),
    Pattern(_points, _spaced, takes_floats=True),
)
