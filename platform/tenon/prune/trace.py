"""Record what a model computes for an example, and name the tensors that it has.

Unlike for a compiled function, Python may read values: what it decides by them is part of the recording.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Any

from tenon.engine import scopes
from tenon.engine.backend import backend_named
from tenon.engine.grad_mode import no_grad
from tenon.engine.interceptor import SLOT
from tenon.engine.op import Composite
from tenon.errors import CaptureError, PruningError
from tenon.graph.graph import Graph, Node, Ref
from tenon.graph.recorder import Recorder
from tenon.nn.module import Module
from tenon.prune.sizes import Asked, note_asked
from tenon.tensors.pytree import tree_leaves
from tenon.tensors.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Trace:
    """The graph of one run of a model."""

    graph: Graph
    outputs: tuple[Ref, ...]
    #: Inputs of the graph that are parameters or buffers of the model.
    stored: dict[Node, Any]
    #: What the code of modules asked ``reshape`` and its kin for.
    asked: tuple[Asked, ...]


class _Recorder(Recorder):
    def __init__(self, known: Set[str]) -> None:
        super().__init__(backend_named("cpu"), strict=True)
        self._known = known

    def run(self, op: Any, args: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        """Composites of which nothing is known are written down as their parts."""
        if isinstance(op, Composite) and not {op.name, op.kind.value} & self._known:
            return SLOT.parts(op, args, attrs)
        return super().run(op, args, attrs)

    def made(self, array: Any) -> None:
        """New values belong to the module that runs."""
        before = len(self.graph.nodes)
        super().made(array)
        for node in self.graph.nodes[before:]:
            node.module = scopes.path_of(scopes.here.place)

    def _host_read(self, raw: Any) -> Any:
        return self._read(raw)

    def reading(self, raw: Any, what: str) -> None:
        """Values may choose shapes."""


def trace(model: Module, args: tuple[Any, ...], kwargs: dict[str, Any], known: Set[str]) -> Trace:
    """Run ``model`` without gradients and write down its ops, composites as their parts unless their names or
    kinds are ``known``; PruningError where that cannot be."""
    recorder = _Recorder(known)
    notes: list[Asked] = []
    with no_grad():
        recorder.start()
        forget = note_asked(recorder.graph, notes)
        try:
            result = model(*args, **kwargs)
            leaves = [t for t in tree_leaves(result) if isinstance(t, Tensor)]
            outputs = tuple(recorder.ref(leaf) for leaf in leaves)
        except CaptureError as error:
            raise PruningError(
                f"the model cannot be recorded, so nothing is known of what depends on what: {error}"
            ) from error
        finally:
            forget()
            recorder.stop()
    own = {id(t.raw): t for t in (*model.parameters(), *model.buffers())}
    stored = {node: own[key] for key, (node, _) in recorder.outside.items() if key in own}
    return Trace(recorder.graph, outputs, stored, tuple(notes))
