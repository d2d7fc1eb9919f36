"""``trace``: capture one run of a model for analyses of dependencies.

It is ``capture(..., as_run=True)`` with the parts of the graph under the names of ``tenon.extend``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tenon.engine.types import Nested
from tenon.export.capture import capture
from tenon.export.captured import CapturedGraph
from tenon.graph.graph import Node, Ref
from tenon.graph.shape_requests import ShapeRequest as ShapeRequest
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.nn.module import Module


@dataclass(frozen=True, slots=True)
class Trace:
    """A captured run of a model."""

    graph: CapturedGraph
    #: The tensors that the model returned.
    outputs: tuple[Ref, ...]
    #: The inputs of the graph that are parameters or buffers of the model.
    stored: dict[Node, Tensor]
    #: All requests, in order.
    shape_requests: tuple[ShapeRequest, ...]

    @classmethod
    def of(cls, graph: CapturedGraph) -> Trace:
        """Return a captured graph as a trace."""
        kinds = graph.signature.states
        stored = {n: n.value for n in graph.states if kinds[n.label] in ("parameter", "buffer")}
        return cls(graph, tuple(graph.outputs), stored, tuple(graph.shape_requests))


def trace(
    model: Module,
    args: Sequence[Nested] = (),
    kwargs: Mapping[str, Nested] | None = None,
    whole: Set[str] = frozenset(),
) -> Trace:
    """Run ``model(*args, **kwargs)`` without gradients and return the graph of its ops.

    Composite ops are recorded as their parts, unless ``whole`` has their name or that of their kind.
    CaptureError where the run cannot be recorded. Parameters, buffers and the random generator are left as
    they were.

    >>> import tenon
    >>> model = tenon.nn.Sequential(tenon.nn.Linear(4, 2), tenon.nn.ReLU())
    >>> traced = trace(model, [tenon.ones(1, 4)], whole={"linear"})
    >>> [node.name for node in traced.graph.calls]
    ['linear', 'relu']
    """
    return Trace.of(capture(model, *args, kwargs=kwargs, whole=whole, as_run=True))
