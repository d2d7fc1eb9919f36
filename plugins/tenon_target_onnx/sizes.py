"""Sizes: numbers, or expressions of symbols that are known when the model runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tenon.extend import CapturedGraph, SizeGuard, errors

if TYPE_CHECKING:
    from tenon_target_onnx.builder import Builder

#: An int, or a symbolic size of a graph that was captured with ``dynamic=``.
Size: TypeAlias = Any


def is_number(size: Size) -> bool:
    """Whether a size is the same in every run."""
    return isinstance(size, int | np.integer)


def are_numbers(sizes: Sequence[Size]) -> bool:
    """Whether all sizes are the same in every run."""
    return all(is_number(s) for s in sizes)


#: How the keys of a model's metadata begin that have the range of a size: ``size.batch``.
RANGE = "size."


def range_text(least: int, most: int | None) -> str:
    """Return a range as it is in the metadata of a model: ``1 to 32``, or ``1 or more``."""
    return f"{least} or more" if most is None else f"{least} to {most}"


def in_range(size: int, text: str | None) -> bool:
    """Whether a size is in a range that ``range_text`` has written; one that it has not limits nothing."""
    match = re.fullmatch(r"(\d+) (?:or more|to (\d+))", text or "")
    if match is None:
        return True
    least, most = match.groups()
    return int(least) <= size and (most is None or size <= int(most))


_OPERATORS = {"add": "Add", "sub": "Sub", "mul": "Mul"}


def computed(builder: Builder, size: Size) -> str:
    """Return nodes that compute a symbolic size, as a vector of one int64."""
    if is_number(size):
        return builder.ints([size])
    if size.function == "symbol":
        name, axis = builder.symbols[str(size)]
        return builder.call("Shape", name, start=axis, end=axis + 1)
    left, right = (builder.size(a) for a in size.args)
    if size.function == "floordiv":  # integers are divided towards zero
        rest = builder.call("Mod", left, right)
        return builder.call("Div", builder.call("Sub", left, rest), right)
    if size.function == "mod":
        return builder.call("Mod", left, right)
    if size.function not in _OPERATORS:
        raise errors.LoweringError(f"the target onnx cannot compute the size {size}.")
    return builder.call(_OPERATORS[size.function], left, right)


#: Question -> the operator that answers it.
_COMPARING = {"eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual"}


def add_size_guards(builder: Builder, graph: CapturedGraph) -> None:
    """Make an argument that is read an error at sizes for which Python would branch otherwise.

    ONNX has no operator that raises an error. The argument becomes the only element of an axis that is
    indexed by 0, or by 1 where a guard fails; a runtime that checks indices names the node, which states the
    guard.
    """
    read = {ref for node in graph.nodes for ref in node.refs} | set(graph.outputs)
    argument = next((node.out() for node in graph.arguments if node.out() in read), None)
    if argument is None:
        return
    for guard in graph.size_guards:
        fails = _fails(builder, guard)
        wrapped = builder.unsqueezed(builder.names[argument], [0])
        stated = f"guard {guard.condition} is {guard.answer} ({guard.place})"
        builder.names[argument] = builder.call("Gather", wrapped, fails, axis=0)
        builder.steps[-1] = replace(builder.steps[-1], name=builder.unique(stated))


def _fails(builder: Builder, guard: SizeGuard) -> str:
    """Return 1 if the guard fails, else 0."""
    left, right = (
        builder.ints([size]) if isinstance(size, int) else builder.size(size)
        for size in (guard.left, guard.right)
    )
    answer = builder.call(_COMPARING[guard.question], left, right)
    answer = builder.call("Not", answer) if guard.answer else answer
    return builder.squeezed(builder.cast(answer, np.dtype(np.int64)), [0])
