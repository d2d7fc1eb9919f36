"""The forms of ops by name: ``@form("conv")`` registers a function that adds the lines of a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from tenon.extend import Node
from tenon_target_stablehlo.builder import Builder, Value, has_elements
from tenon_target_stablehlo.sizes import are_numbers

#: Adds the lines of a call; returns its outputs.
Write: TypeAlias = Callable[[Builder, Node], Value | tuple[Value, ...]]
Condition: TypeAlias = Callable[[Node], bool]


class Form(NamedTuple):
    """The form of an op: the function that writes its calls, and their conditions."""

    write: Write
    #: A predicate of the calls that it can write.
    when: Condition


FORMS: dict[str, Form] = {}


def _always(node: Node) -> bool:
    return True


def form(*names: str, when: Condition = _always) -> Callable[[Write], Write]:
    """Register the decorated function as the form of the ops ``names``, for calls with ``when``."""

    def register(write: Write) -> Write:
        for name in names:
            FORMS[name] = Form(write, when)
        return write

    return register


def has_dtypes(node: Node) -> bool:
    """Whether StableHLO has the dtypes of all values that a call reads and makes."""
    avals = [*node.avals, *(r.aval for r in node.refs if not r.scalar)]
    return all(has_elements(a.dtype) for a in avals)


def alone(node: Node) -> bool:
    """Whether a call has its public outputs only: no statistics for a gradient."""
    return len(node.avals) == (node.op.outputs or len(node.avals))


def is_float(node: Node) -> bool:
    """Whether a call makes floats of 16 bits or more."""
    return node.avals[0].dtype.name in ("float16", "bfloat16", "float32", "float64")


def is_static(node: Node) -> bool:
    """Whether all sizes of a call are the same in every run."""
    avals = [*node.avals, *(r.aval for r in node.refs if not r.scalar)]
    return all(are_numbers(a.shape) for a in avals)


def static_float(node: Node) -> bool:
    """Whether a call makes floats of sizes that are the same in every run."""
    return is_float(node) and is_static(node) and alone(node)
