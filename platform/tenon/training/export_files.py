"""Files that hold a graph, for ``tenon export``: bundles, exported programs, and traces.

A program's file has the arguments that it was exported with; a trace's has none. Further test runs get random
arguments: normally distributed floats, and the integers 0 and 1, which every table of an embedding has.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from tenon.engine.types import Array, Nested
from tenon.errors import BundleError, ConfigError, TenonError
from tenon.export import archive, program_file
from tenon.export import bundle as bundles
from tenon.export.axes import axes_of, named_axes
from tenon.export.captured import CapturedGraph
from tenon.export.jit import content, restore
from tenon.export.sizes import Expression, Sizes, symbol
from tenon.export.symbolic.arithmetic import substituted
from tenon.export.symbolic.size_guards import SizeGuard, distinct

#: A graph, and the arguments of test runs.
Read: TypeAlias = tuple[CapturedGraph, list[tuple[Nested, ...]]]
#: How many test runs at the example's sizes have random arguments.
_RANDOM = 2


def has_graph(file: Path) -> bool:
    """Whether ``file`` is an exported program or a trace."""
    return bool({program_file.GRAPH, content.MODULE} & _entries(file))


def graph_of(file: Path, batch_size: int | None, any_size: bool, most: int | None) -> Read:
    """Return the graph of a program or trace, and arguments for test runs.

    The sizes that may change in a program may change in the result. Of a trace, which finds such sizes by
    itself, only that of the batch may, if ``any_size`` or if it has at ``most`` so many samples. All others
    are those of the example, and ``batch_size``.
    """
    is_trace = content.MODULE in _entries(file)
    graph = restore.load(file).graph if is_trace else program_file.load(file).captured
    free = not is_trace or any_size or most is not None
    batch = _batch(graph)
    if batch is None and (batch_size is not None or any_size or most is not None):
        raise ConfigError(
            f"the batch of {file} has one size, so that --batch-size, --any-batch-size and --max-batch-size "
            "have no meaning. Export or trace the model with a batch that may change."
        )
    if batch_size is not None and (any_size or most is not None):
        raise ConfigError(
            f"--batch-size {batch_size} fixes the size of the batch, which --any-batch-size and "
            "--max-batch-size let change. Give one of them; test runs have the size of the example."
        )
    example = list(graph.example)
    if batch_size is not None or not free:
        graph = graph.at(**({} if batch is None or batch_size is None else {batch: batch_size}))
    if batch in graph.symbols and is_trace:
        graph = with_free(graph, batch)
    if batch in graph.symbols and most is not None:
        graph.symbols[batch] = graph.symbols[batch].bounded(graph.symbols[batch].least, most)
    return graph, _calls(graph, example, batch)


@contextlib.contextmanager
def blamed(file: Path) -> Iterator[None]:
    """Raise BundleError for whatever fails while the graph of ``file`` is written.

    Files may describe calls that no function makes, with attributes of wrong types.
    """
    try:
        yield
    except (TenonError, OSError, MemoryError):
        raise
    except Exception as error:
        raise BundleError(
            f"the graph of {file} cannot be written: {type(error).__name__}: {error}. An argument or "
            "attribute of one of its calls may be invalid; export the model again."
        ) from error


def with_free(graph: CapturedGraph, name: str) -> CapturedGraph:
    """Return a copy of ``graph`` in which the size ``name`` may change, and all others are the example's."""
    known = {other: symbol(other) if other == name else each.example for other, each in graph.symbols.items()}
    result = graph.copy()
    result.symbols = {name: graph.symbols[name]}
    sizes = {
        node: {path: substituted(size, known) for path, size in paths.items()}
        for node, paths in result.symbolic.items()
    }
    result.symbolic = {
        node: {path: size for path, size in paths.items() if isinstance(size, Expression)}
        for node, paths in sizes.items()
    }
    result.dynamic = named_axes(axes_of(result))
    guards = [
        SizeGuard(substituted(g.left, known), g.question, substituted(g.right, known), g.answer, g.where)
        for g in graph.size_guards
    ]
    result.size_guards = distinct(guards)
    return result


def _entries(file: Path) -> set[str]:
    """Return the names in an archive; none if the file is no archive, or a damaged one."""
    if not file.is_file():
        return set()
    try:
        with archive.reading(file, str(file), "tenon.export.save") as opened:
            return set(opened.namelist())
    except BundleError:
        return set()


def of_bundle(folder: Path) -> Read:
    """Return the graph of a bundle, and the arguments of its vectors."""
    read = bundles.load(folder)
    calls = []
    for vector in read.vectors.runs:
        read.graph.example = vector.inputs
        calls.append(read.graph.example_arguments())
    return read.graph, calls


def _batch(graph: CapturedGraph) -> str | None:
    """Return the size that the first axis of arguments has, if it may change."""
    axes = axes_of(graph)
    first = (axes.get(node.label, {}).get(0) for node in graph.arguments)
    return next((str(size.args[0]) for size in first if size is not None and size.function == "symbol"), None)


def _calls(graph: CapturedGraph, example: Sequence[Array], batch: str | None) -> list[tuple[Nested, ...]]:
    """Return the arguments of test runs: the example if its shapes fit, and random ones, of two sizes."""
    sizes = {name: each.example for name, each in graph.symbols.items()}
    generator = np.random.Generator(np.random.PCG64(0))
    runs: list[Sequence[Array]] = []
    shapes = [node.avals[0].shape for node in graph.arguments]
    if example and [array.shape for array in example] == shapes:
        runs.append(example)
    runs += [_random(graph, sizes, generator) for _ in range(_RANDOM)]
    if batch in graph.symbols:
        own = graph.symbols[batch]
        larger = own.example + 2 if own.most is None else min(own.example + 2, own.most)
        if graph.permits({**sizes, batch: larger}):
            runs.append(_random(graph, {**sizes, batch: larger}, generator))
    calls = []
    for arrays in runs:
        graph.example = [np.array(array) for array in arrays]
        calls.append(graph.example_arguments())
    return calls


def _random(graph: CapturedGraph, sizes: Sizes, generator: np.random.Generator) -> list[Array]:
    """Return an array for each argument, at these sizes of the symbols."""
    arrays = []
    for node in graph.arguments:
        aval, own = node.avals[0], graph.symbolic.get(node, {})
        shape = [
            own[("shape", 0, axis)].at(sizes) if ("shape", 0, axis) in own else size
            for axis, size in enumerate(aval.shape)
        ]
        kind = aval.dtype.kind
        if kind not in "fciubV":
            raise BundleError(f"the argument {node.label!r} has the dtype {aval.dtype}, of no test run.")
        values = generator.integers(0, 2, shape) if kind in "iub" else generator.standard_normal(shape)
        arrays.append(np.asarray(values).astype(aval.dtype))
    return arrays
