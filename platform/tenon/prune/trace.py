"""Record what a model computes for an example, and name the tensors that it has.

Unlike for a compiled function, Python may read values: what it decides by them is part of the recording.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tenon.core.backend import backend_named
from tenon.core.grad_mode import no_grad
from tenon.core.pytree import tree_leaves
from tenon.core.tensor import Tensor
from tenon.errors import CaptureError, PruningError
from tenon.graph.graph import Graph, Node, Ref
from tenon.graph.recorder import Recorder
from tenon.nn.module import Module


@dataclass(frozen=True, slots=True)
class Trace:
    """The graph of one run of a model."""

    graph: Graph
    outputs: tuple[Ref, ...]
    #: Inputs of the graph that are parameters or buffers of the model.
    stored: dict[Node, Any]


class _Recorder(Recorder):
    def _host_read(self, raw: Any) -> Any:
        return self._read(raw)

    def reading(self, raw: Any, what: str) -> None:
        """Values may choose shapes."""


def trace(model: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Trace:
    """Run ``model`` without gradients and write down its ops; PruningError where they cannot be."""
    recorder = _Recorder(backend_named("cpu"), strict=True)
    with no_grad():
        recorder.start()
        try:
            result = model(*args, **kwargs)
            leaves = [t for t in tree_leaves(result) if isinstance(t, Tensor)]
            outputs = tuple(recorder.ref(leaf) for leaf in leaves)
        except CaptureError as error:
            raise PruningError(
                f"the model cannot be recorded, so nothing is known of what depends on what: {error}"
            ) from error
        finally:
            recorder.stop()
    own = {id(t.raw): t for t in (*model.parameters(), *model.buffers())}
    stored = {node: own[key] for key, (node, _) in recorder.outside.items() if key in own}
    return Trace(recorder.graph, outputs, stored)
