"""``trace``: the graph of one run of a model, for analyses of what depends on what.

Unlike for a compiled function, Python may read values: what it decides by them is part of the trace. Nothing
is optimized, so every node is one op of the model's code, with the path of the module that ran it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from tenon.engine import scopes
from tenon.engine.grad_mode import no_grad
from tenon.engine.interceptor import SLOT
from tenon.engine.op import Composite
from tenon.graph import shape_requests
from tenon.graph.graph import Graph, Node, Ref
from tenon.graph.recorder import Recorder
from tenon.kernels.backend import backend_named
from tenon.tensors.pytree import tree_leaves
from tenon.tensors.tensor import Tensor


@dataclass(frozen=True, slots=True)
class ShapeRequest:
    """One request of the model's code for a shape, a split or a slice; see ``tenon.graph.shape_requests``."""

    #: ``id`` of the module whose code asked.
    module: int
    #: How many nodes the graph had: the request is carried out by one of those that follow.
    position: int
    kind: str
    shape: tuple[int, ...]
    #: What the code asked for; of a slice what it was answered.
    asked: Any


@dataclass(frozen=True, slots=True)
class Trace:
    """The graph of one run of a model."""

    graph: Graph
    outputs: tuple[Ref, ...]
    #: Inputs of the graph that are parameters or buffers of the model.
    stored: dict[Node, Any]
    shape_requests: tuple[ShapeRequest, ...]


class _Tracer(Recorder):
    def __init__(self, whole: Set[str]) -> None:
        super().__init__(backend_named("cpu"), strict=True)
        self._whole = whole

    def run(self, op: Any, args: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        """Composites that are not to stay whole are recorded as the ops that they are made of."""
        if isinstance(op, Composite) and not {op.name, op.kind.value} & self._whole:
            return SLOT.parts(op, args, attrs)
        return super().run(op, args, attrs)

    def made(self, array: Any) -> None:
        """A new value belongs to the module that runs."""
        before = len(self.graph.nodes)
        super().made(array)
        for node in self.graph.nodes[before:]:
            node.module = scopes.path_of(scopes.here.place)

    def _host_read(self, raw: Any) -> Any:
        return self._read(raw)

    def reading(self, raw: Any, what: str) -> None:
        """Values may choose shapes."""


def trace(
    model: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    whole: Set[str] = frozenset(),
) -> Trace:
    """Run ``model(*args, **kwargs)`` without gradients and return the graph of its ops.

    Composite ops are recorded as their parts, unless ``whole`` has their name or that of their kind.
    CaptureError where the run cannot be recorded.

    >>> import tenon
    >>> model = tenon.nn.Sequential(tenon.nn.Linear(4, 2), tenon.nn.ReLU())
    >>> found = trace(model, [tenon.ones(1, 4)], whole={"linear"})
    >>> [node.name for node in found.graph.nodes if node.kind == "call"]
    ['linear', 'relu']
    """
    tracer = _Tracer(whole)
    requests: list[ShapeRequest] = []

    def note(kind: str, shape: tuple[int, ...], asked: Any) -> Any:
        call, meant = shape_requests.running_call(), shape_requests.answer(kind, shape, asked)
        if call is not None:
            what = meant if kind == "slice" else asked
            requests.append(ShapeRequest(call[1], len(tracer.graph.nodes), kind, shape, what))
        return meant

    with no_grad(), shape_requests.handled_by(note):
        tracer.start()
        try:
            result = model(*args, **(kwargs or {}))
            leaves = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
            outputs = tuple(tracer.ref(leaf) for leaf in leaves)
        finally:
            tracer.stop()
    own = {id(t.raw): t for t in (*model.parameters(), *model.buffers())}
    stored = {node: own[key] for key, (node, _) in tracer.outside.items() if key in own}
    return Trace(tracer.graph, outputs, stored, tuple(requests))
