"""Copy results that do not share memory in the traced function, but would in its graph.

A graph has no copies: ``x.clone()`` is ``x`` in it. As the caller may change results in place, a trace may
return the memory of an argument, a parameter, a constant or another result only where the function does.
"""

from __future__ import annotations

import numpy as np

from tenon.engine.op import table
from tenon.export.captured import CapturedGraph
from tenon.export.jit.recording import Recording
from tenon.export.signature import Result
from tenon.graph.graph import Node, Ref


class ResultAliases:
    """Which memory the results of a traced function share; determined while the results of its call exist."""

    def __init__(self, recording: Recording, graph: CapturedGraph) -> None:
        outside = [*recording.given, *(node.value.raw for node in graph.states)]
        returned = recording.returned
        #: For each returned tensor, whether it shares no memory with arguments and states.
        self.fresh = [not any(_shares(array, other) for other in outside) for array in returned]
        #: For each returned tensor, the indices of earlier ones that it shares memory with.
        self.shared = [
            {i for i, other in enumerate(returned[:position]) if _shares(array, other)}
            for position, array in enumerate(returned)
        ]

    def separate(self, graph: CapturedGraph) -> None:
        """Make ``graph`` return copies of values that would alias memory which the function's results do
        not."""
        positions = [each.index for each in graph.signature.returned if isinstance(each, Result)]
        roots: list[Node] = []
        for number, index in enumerate(positions):
            ref = graph.outputs[index]
            root = _root(ref)
            outside = self.fresh[number] and root.kind != "call"
            if outside or any(r is root and i not in self.shared[number] for i, r in enumerate(roots)):
                copied = graph.call(table["clone"], (ref,), {}, (ref.aval,))
                graph.outputs[index] = copied.out()
                root = copied
            roots.append(root)


def _root(ref: Ref) -> Node:
    """Return the node whose memory the value may be: views are followed."""
    node = ref.node
    while node.kind == "call" and (node.op.view or node.op.identity):
        node = node.args[0].node
    return node


def _shares(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.may_share_memory(a, b))
