"""``trace``: the graph of one run of a model, for analyses of dependencies.

Unlike in a compiled function, Python may read values: the branches that it takes on them are part of the
trace. Nothing is optimized, so every call is one op of the model's code, with the path of the module that ran
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tenon.engine import scopes
from tenon.engine.interceptor import SLOT
from tenon.engine.op import Composite, Op
from tenon.engine.types import Arguments, Array, Attrs, Nested
from tenon.graph import shape_requests
from tenon.graph.graph import Graph, Node, Ref
from tenon.graph.recorder import Recorder
from tenon.graph.shape_requests import Sizes
from tenon.kernels.backend import backend_named
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.pytree import tree_leaves
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.nn.module import Module


@dataclass(frozen=True, slots=True)
class ShapeRequest:
    """A request of the model's code to reshape, split or slice; see ``tenon.graph.shape_requests``."""

    #: ``id`` of the module whose code made it.
    module: int
    #: The number of nodes in the graph at that time: a later node carries it out.
    position: int
    #: "shape", "cut", "chunks" or "slice".
    kind: str
    shape: tuple[int, ...]
    #: The requested sizes; of a slice the answer.
    asked: Sizes


@dataclass(frozen=True, slots=True)
class Trace:
    """The graph of one run of a model."""

    graph: Graph
    #: The tensors that the model returned.
    outputs: tuple[Ref, ...]
    #: The inputs of the graph that are parameters or buffers of the model.
    stored: dict[Node, Tensor]
    #: All requests, in order.
    shape_requests: tuple[ShapeRequest, ...]


class _Tracer(Recorder):
    """A recorder that lets Python read values."""

    def __init__(self, whole: Set[str]) -> None:
        super().__init__(backend_named("cpu"), strict=True)
        self._whole = whole

    def run(self, op: Op, args: Arguments, attrs: Attrs) -> Nested:
        """Execute ``op`` and record it; a composite as its parts, unless it is to stay whole."""
        if isinstance(op, Composite) and not {op.name, op.kind.value} & self._whole:
            return SLOT.parts(op, args, attrs)
        return super().run(op, args, attrs)

    def made(self, array: Array) -> None:
        """Callback: ``array`` was created; its constant belongs to the running module."""
        before = len(self.graph.nodes)
        super().made(array)
        for node in self.graph.nodes[before:]:
            node.module = scopes.path_of(scopes.here.place)

    def _host_read(self, raw: Array) -> np.ndarray:
        return self._read(raw)

    def reading(self, raw: Array, what: str) -> None:
        """Allow shapes that depend on values."""


def trace(
    model: Module,
    args: Sequence[Nested] = (),
    kwargs: Mapping[str, Nested] | None = None,
    whole: Set[str] = frozenset(),
) -> Trace:
    """Run ``model(*args, **kwargs)`` without gradients and return the graph of its ops.

    Composite ops are recorded as their parts, unless ``whole`` has their name or that of their kind.
    CaptureError where the run cannot be recorded.

    >>> import tenon
    >>> model = tenon.nn.Sequential(tenon.nn.Linear(4, 2), tenon.nn.ReLU())
    >>> traced = trace(model, [tenon.ones(1, 4)], whole={"linear"})
    >>> [node.name for node in traced.graph.nodes if node.kind == "call"]
    ['linear', 'relu']
    """
    tracer = _Tracer(whole)
    requests: list[ShapeRequest] = []

    def record_request(kind: str, shape: tuple[int, ...], requested: Sizes) -> Sizes:
        call, answer = shape_requests.running_call(), shape_requests.answer(kind, shape, requested)
        if call is not None:
            sizes = answer if kind == "slice" else requested
            requests.append(ShapeRequest(call[1], len(tracer.graph.nodes), kind, shape, sizes))
        return answer

    with no_grad(), shape_requests.handled_by(record_request):
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
