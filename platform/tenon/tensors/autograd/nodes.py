"""The user's view of the autograd graph: PyTorch's node classes, ``AccumulateGrad`` of leaves, edges.

The tape itself needs none of this: a node gets a class with PyTorch's name and attributes when it is first
inspected (``as_graph_node``), and a leaf has no node at all. Hooks registered on an ``AccumulateGrad`` are
therefore stored on the leaf.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from tenon import dtypes
from tenon.compat import saved_attributes
from tenon.engine.aval import Aval, aval_of
from tenon.engine.grad_mode import MODE
from tenon.engine.gradient_rules import on_tensors
from tenon.engine.tape import CustomNode, Node
from tenon.errors import FreedGraphError, GradError
from tenon.tensors.autograd.handles import RemovableHandle
from tenon.tensors.autograd.hooks import LeafHooks, new_hooks, register_in
from tenon.tensors.size import Size

if TYPE_CHECKING:
    from tenon.device import Device
    from tenon.engine.types import Gradient
    from tenon.engine.value import Value

N = TypeVar("N", bound=Node)
#: The user's own data about a node, of any type.
Metadata: TypeAlias = dict[str, Any]


class InputMetadata(NamedTuple):
    """Shape, dtype and device of the gradient that a node expects for one of its outputs."""

    shape: Size
    dtype: dtypes.dtype
    device: Device | None


def metadata_of(avals: Iterable[Aval | None], device: Device | None) -> tuple[InputMetadata | None, ...]:
    """``InputMetadata`` of each output's aval; None for an output that is not a tensor."""
    return tuple(
        None if a is None else InputMetadata(Size(a.shape), dtypes.FROM_NUMPY[a.dtype], device) for a in avals
    )


class AccumulateGrad:
    """The node that represents a leaf in ``next_functions``, as in PyTorch; ``variable`` is the leaf."""

    next_functions: tuple[()] = ()

    def __init__(self, variable: Value) -> None:
        self.variable = variable

    def name(self) -> str:
        """PyTorch's name of the accumulating node."""
        return "torch::autograd::AccumulateGrad"

    @property
    def metadata(self) -> Metadata:
        """A dictionary for the user's own data."""
        metadata: Metadata = self.variable.__dict__.setdefault("_node_metadata", {})
        return metadata

    @property
    def _input_metadata(self) -> tuple[InputMetadata | None, ...]:
        leaf = self.variable
        return metadata_of((Aval(tuple(leaf.raw.shape), leaf.raw.dtype),), leaf.device)

    def register_hook(self, hook: Callable[..., object]) -> RemovableHandle:
        """Call ``hook((), (grad,))`` after ``grad`` was accumulated into the leaf."""
        return register_in(self._registry("_node_hooks"), hook)

    def register_prehook(self, hook: Callable[..., object]) -> RemovableHandle:
        """Call ``hook((grad,))`` before ``grad`` is accumulated; it may return another in a tuple."""
        return register_in(self._registry("_node_prehooks"), hook)

    def _registry(self, name: str) -> LeafHooks:
        extra = self.variable.__dict__
        extra.setdefault("_post_accumulate_hooks", LeafHooks())  # makes the sweep check for leaf hooks
        hooks: LeafHooks = extra.setdefault(name, LeafHooks())
        return hooks

    def __repr__(self) -> str:
        return f"<AccumulateGrad object at {id(self):#x}>"


def accumulator_of(leaf: Value) -> AccumulateGrad:
    """The unique ``AccumulateGrad`` of ``leaf``, which refers to it weakly."""
    reference = leaf.__dict__.get("_accumulator")
    accumulator: AccumulateGrad | None = None if reference is None else reference()
    if accumulator is None:
        accumulator = AccumulateGrad(leaf)
        leaf.__dict__["_accumulator"] = weakref.ref(accumulator)
    return accumulator


class GraphNode(Node):
    """A node as users see it, as ``grad_fn`` and in ``next_functions`` (torch.autograd.graph.Node).

    ``as_graph_node`` turns a node of the tape into one of these: its new class derives its former class and
    this one.
    """

    __slots__ = ()

    @property
    def next_functions(self) -> tuple[tuple[Node | AccumulateGrad | None, int], ...]:
        """For each input the node that computed it and the index among that node's outputs, as in PyTorch;
        ``(None, 0)`` for an input without gradient."""
        return tuple(
            (None, 0) if e is None else (accumulator_of(e[0]), 0) if e[1] < 0 else (as_graph_node(e[0]), e[1])
            for e in self.edges
        )

    @property
    def metadata(self) -> Metadata:
        """A dictionary for the user's own data."""
        return user_metadata(self)

    @property
    def _input_metadata(self) -> tuple[InputMetadata | None, ...]:
        device = None if self.out is None else self.backend.device_of(self.out)
        return metadata_of(avals_of(self), device)

    def __getattr__(self, name: str) -> Any:  # a saved tensor, number, tuple or None, by the op and ``name``
        if not name.startswith(("_saved_", "_raw_saved_")):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return saved_attributes.find(self, name)

    def __call__(self, *grads: Gradient) -> Gradient:
        """The gradients of the inputs from those of the outputs, as the backward pass would compute them."""
        expected = len(self.output_avals or (None,))
        if len(grads) != expected:
            raise TypeError(f"expected {expected} arguments, got {len(grads)} instead, in {self.name()}")
        grad = grads[0] if self.op.outputs == 1 else list(grads)
        if isinstance(self, CustomNode):
            results = tuple(self.apply_tensors(grad, MODE.enabled))
        else:
            results = tuple(on_tensors(self, self.edges, grad, MODE.enabled))
        return results[0] if len(results) == 1 else results

    def register_hook(self, hook: Callable[..., object]) -> RemovableHandle:
        """Call ``hook(grad_inputs, grad_outputs)`` after this node ran; it may return new ``grad_inputs``."""
        if self.node_hooks is None:
            self.node_hooks = new_hooks()
            self.watched = True
        return register_in(self.node_hooks, hook)

    def register_prehook(self, hook: Callable[..., object]) -> RemovableHandle:
        """Call ``hook(grad_outputs)`` before this node runs; it may return new ``grad_outputs``."""
        if self.node_prehooks is None:
            self.node_prehooks = new_hooks()
            self.watched = True
        return register_in(self.node_prehooks, hook)


def user_metadata(node: Node) -> Metadata:
    """Return the dictionary for the user's data about ``node``, also if its class is not a ``GraphNode``."""
    notes: Metadata = node.__dict__.setdefault("_metadata", {})
    return notes


@functools.cache
def _class_of(base: type, name: str) -> type:
    bases = (base,) if issubclass(base, GraphNode) else (GraphNode,) if base is Node else (base, GraphNode)
    return type(name, bases, {"__slots__": (), "_graph_node": True})


def as_graph_node(node: N, tensor: Value | None = None) -> N:
    """Change the class of ``node`` to one of PyTorch's name with ``GraphNode``'s attributes; return ``node``.

    ``tensor`` is its only output, whose shape and dtype are stored in the node.
    """
    cls: type = node.__class__
    if "_graph_node" not in cls.__dict__ and (cls.__name__ != node.name() or not issubclass(cls, GraphNode)):
        node.__class__ = _class_of(cls, node.name())
    if tensor is not None and node.output_avals is None:
        node.output_avals = (Aval(tuple(tensor.raw.shape), tensor.raw.dtype),)
    return node


def avals_of(node: Node) -> tuple[Aval | None, ...]:
    """Shape and dtype of each of ``node``'s outputs."""
    if node.output_avals is None:
        if node.args is None:
            raise FreedGraphError(
                f"The shape of the output of {node.name()} is not known any more, as its graph was freed."
                " Call autograd.graph.get_gradient_edge(tensor) before the backward pass."
            )
        avals = node.op.infer(*map(aval_of, node.args), **node.attrs)
        node.output_avals = avals if isinstance(avals, tuple) else (avals,)
    return tuple(node.output_avals)


class GradientEdge(NamedTuple):
    """The graph edge of a tensor, its node and output index (torch.autograd.graph.GradientEdge)."""

    node: Any  # a GraphNode or AccumulateGrad; end_of() distinguishes them
    output_nr: int


class EdgeEnd:
    """A placeholder for the tensor at a ``GradientEdge``, as root or requested input of a backward pass."""

    __slots__ = ("_backend", "_index", "_node", "raw")

    _track = requires_grad = True
    _view = None

    def __init__(self, edge: GradientEdge) -> None:
        avals = avals_of(edge.node)
        aval = avals[edge.output_nr] if 0 <= edge.output_nr < len(avals) else None
        if aval is None:
            raise GradError(f"{edge.node.name()} has no output {edge.output_nr}; it has {len(avals)}.")
        self._node, self._index = edge
        self._backend = edge.node.backend
        self.raw = aval

    @property
    def shape(self) -> Size:
        """The shape of the gradient that is expected here."""
        return Size(self.raw.shape)

    @property
    def dtype(self) -> dtypes.dtype:
        """The dtype of the gradient that is expected here."""
        return dtypes.FROM_NUMPY[self.raw.dtype]


def end_of(value: object) -> Any:  # ``value``, a leaf or an EdgeEnd
    """The leaf or placeholder at ``value`` if that is a ``GradientEdge``; any other value unchanged."""
    if not isinstance(value, GradientEdge):
        return value
    return value.node.variable if isinstance(value.node, AccumulateGrad) else EdgeEnd(value)
