"""The forms of ops by name: ``@form("conv")`` registers a function that adds the ONNX nodes of a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from tenon.extend import Node
from tenon_target_onnx.builder import DTYPES, Builder

#: Adds the nodes of a call; returns the names of its outputs.
Write: TypeAlias = Callable[[Builder, Node], str | tuple[str, ...]]
Condition: TypeAlias = Callable[[Node], bool]


class Form(NamedTuple):
    """The form of an op: the function that writes its calls, and their conditions."""

    write: Write
    #: A predicate of the calls that it can write.
    when: Condition
    #: The first opset that has the operators.
    opset: int


FORMS: dict[str, Form] = {}


def _always(node: Node) -> bool:
    return True


def form(*names: str, when: Condition = _always, opset: int = 17) -> Callable[[Write], Write]:
    """Register the decorated function as the form of the ops ``names``, for calls with ``when``."""

    def register(write: Write) -> Write:
        for name in names:
            FORMS[name] = Form(write, when, opset)
        return write

    return register


def has_dtypes(node: Node) -> bool:
    """Whether ONNX has the dtypes of all inputs and outputs of a call."""
    avals = [*node.avals, *(r.aval for r in node.refs if not r.scalar)]
    return all(a.dtype.name in DTYPES for a in avals)


def alone(node: Node) -> bool:
    """Whether a call has its public outputs only: no residuals for a gradient."""
    return len(node.avals) == (node.op.outputs or len(node.avals))


def is_float(node: Node) -> bool:
    """Whether a call returns floats of 16 bits or more."""
    return node.avals[0].dtype.name in ("float16", "bfloat16", "float32", "float64")


def same_floats(node: Node) -> bool:
    """Whether all values of a call are floats of one dtype, and it has no hidden outputs."""
    dtypes = {a.dtype for a in [*node.avals, *(r.aval for r in node.refs)]}
    return len(dtypes) == 1 and is_float(node) and alone(node)
