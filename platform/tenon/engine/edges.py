"""The user's view of the autograd graph: torch's node class names, ``AccumulateGrad`` of leaves, edges.

The tape itself needs none of this: a node gets its class name when it is first inspected, and a leaf has
no node at all. Hooks registered on an ``AccumulateGrad`` are therefore stored on the leaf.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any, NamedTuple

from tenon import dtypes
from tenon.engine.aval import Aval, aval_of
from tenon.engine.hooks import LeafHooks, register_in
from tenon.errors import FreedGraphError, GradError
from tenon.tensors.size import Size


class InputMetadata(NamedTuple):
    """Shape, dtype and device of the gradient that a node expects for one of its outputs."""

    shape: Size
    dtype: Any
    device: Any


def metadata_of(avals: Any, device: Any) -> tuple[InputMetadata | None, ...]:
    """``InputMetadata`` of each output's aval; None for an output that is no tensor."""
    return tuple(
        None if a is None else InputMetadata(Size(a.shape), dtypes.FROM_NUMPY[a.dtype], device) for a in avals
    )


class AccumulateGrad:
    """The node that represents a leaf in ``next_functions``, as in torch; ``variable`` is the leaf."""

    next_functions: tuple[Any, ...] = ()

    def __init__(self, variable: Any) -> None:
        self.variable = variable

    def name(self) -> str:
        """torch's name of the accumulating node."""
        return "torch::autograd::AccumulateGrad"

    @property
    def metadata(self) -> dict[str, Any]:
        """A dictionary for the user's own data."""
        found: dict[str, Any] = self.variable.__dict__.setdefault("_node_metadata", {})
        return found

    @property
    def _input_metadata(self) -> tuple[InputMetadata | None, ...]:
        leaf = self.variable
        return metadata_of((Aval(tuple(leaf.raw.shape), leaf.raw.dtype),), leaf.device)

    def register_hook(self, hook: Any) -> Any:
        """Call ``hook((), (grad,))`` after ``grad`` was accumulated into the leaf."""
        return register_in(self._registry("_node_hooks"), hook)

    def register_prehook(self, hook: Any) -> Any:
        """Call ``hook((grad,))`` before ``grad`` is accumulated; it may return another in a tuple."""
        return register_in(self._registry("_node_prehooks"), hook)

    def _registry(self, name: str) -> LeafHooks:
        extra = self.variable.__dict__
        extra.setdefault("_post_accumulate_hooks", LeafHooks())  # makes the sweep check for leaf hooks
        found: LeafHooks = extra.setdefault(name, LeafHooks())
        return found

    def __repr__(self) -> str:
        return f"<AccumulateGrad object at {id(self):#x}>"


def accumulator_of(leaf: Any) -> AccumulateGrad:
    """The unique ``AccumulateGrad`` of ``leaf``, which refers to it weakly."""
    reference = leaf.__dict__.get("_accumulator")
    found: AccumulateGrad | None = None if reference is None else reference()
    if found is None:
        found = AccumulateGrad(leaf)
        leaf.__dict__["_accumulator"] = weakref.ref(found)
    return found


def run_prehooks(leaf: Any, grad: Any, hooks: Any) -> Any:
    """Run the pre-hooks of ``leaf``'s ``AccumulateGrad`` on the tensor ``grad``; return the result."""
    for hook in list(hooks.values()):
        changed = hook((grad,))
        if changed is not None:
            grad = changed[0] if isinstance(changed, (tuple, list)) else changed
    return grad


@functools.cache
def _class_of(base: type, name: str) -> type:
    return type(name, (base,), {"__slots__": (), "_shown": True})


def shown(node: Any, tensor: Any = None) -> Any:
    """Give ``node`` a class of torch's name, and store the aval of ``tensor``, its only output; return it."""
    cls = node.__class__
    if "_shown" not in cls.__dict__ and cls.__name__ != node.name():
        node.__class__ = _class_of(cls, node.name())
    if tensor is not None and node.output_avals is None:
        node.output_avals = (Aval(tuple(tensor.raw.shape), tensor.raw.dtype),)
    return node


def avals_of(node: Any) -> tuple[Any, ...]:
    """Shape and dtype of each of ``node``'s outputs."""
    if node.output_avals is None:
        if node.args is None:
            raise FreedGraphError(
                f"The shape of what {node.name()} gave is not known any more, as its graph was freed. Ask for"
                " the edge of the tensor (autograd.graph.get_gradient_edge) before the backward pass."
            )
        found = node.op.infer(*map(aval_of, node.args), **node.attrs)
        node.output_avals = found if isinstance(found, tuple) else (found,)
    return tuple(node.output_avals)


class GradientEdge(NamedTuple):
    """The graph edge of a tensor, its node and output index (torch.autograd.graph.GradientEdge)."""

    node: Any
    output_nr: int


class EdgeEnd:
    """A placeholder for the tensor at a ``GradientEdge``, as root or requested input of a backward pass."""

    __slots__ = ("_backend", "_index", "_node", "raw")

    _track = requires_grad = True
    _view = None

    def __init__(self, edge: GradientEdge) -> None:
        avals = avals_of(edge.node)
        if not 0 <= edge.output_nr < len(avals) or avals[edge.output_nr] is None:
            raise GradError(f"{edge.node.name()} has no output {edge.output_nr}; it has {len(avals)}.")
        self._node, self._index = edge
        self._backend = edge.node.backend
        self.raw = avals[edge.output_nr]

    @property
    def shape(self) -> Size:
        """The shape of the gradient that is expected here."""
        return Size(self.raw.shape)

    @property
    def dtype(self) -> Any:
        """The dtype of the gradient that is expected here."""
        return dtypes.FROM_NUMPY[self.raw.dtype]


def end_of(value: Any) -> Any:
    """The leaf or placeholder at ``value`` if that is a ``GradientEdge``; any other value unchanged."""
    if not isinstance(value, GradientEdge):
        return value
    return value.node.variable if isinstance(value.node, AccumulateGrad) else EdgeEnd(value)
