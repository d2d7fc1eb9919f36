"""``add_writes``: the new values of parameters, buffers, optimizer state and gradients in a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenon.errors import CaptureError
from tenon.export.recorder import CaptureRecorder
from tenon.graph.graph import Node, Write
from tenon.tensors.tensor import Tensor


def add_writes(
    recorder: CaptureRecorder, nodes: Mapping[int, Node], replaced: Sequence[tuple[Tensor, Tensor]]
) -> None:
    """Add the writes into existing parameters, buffers, optimizer state and gradients.

    ``replaced`` are states that were assigned anew, and their new values.
    """
    graph, arguments = recorder.captured, set(nodes.values())
    written: dict[Node, Write] = {}
    values = {recorder.input_of(before): recorder.ref(now) for before, now in replaced}
    for storage in recorder.values.storages:
        node = storage.node
        if node is None or node.kind != "input" or not (storage.written or node in values):
            continue
        if node in arguments and recorder.options.as_run:
            continue
        if node in arguments and not recorder.options.changes_arguments:
            raise CaptureError(
                f"the argument {node.label!r} is changed in place. Change a copy of it: {node.label}.clone()."
            )
        if node in recorder.read_states:
            raise CaptureError(
                f"Python reads a tensor at {recorder.read_states[node]} that the function changes, so that "
                "the next run may decide otherwise. Compute with where()."
            )
        written[node] = Write(node, values.get(node, storage.ref))
    for leaf, before in recorder.gradients_before.values():
        _add_gradient(recorder, leaf, before, written)
    graph.writes = list(written.values())
    if not recorder.options.as_run:
        recorder.refuse_shared([node for node in written if node not in arguments])


def _add_gradient(
    recorder: CaptureRecorder, leaf: Tensor, before: Tensor | None, written: dict[Node, Write]
) -> None:
    """Add the write of a gradient that the call adds to: the next run adds to the sum."""
    read = recorder.initial_gradients.get(id(leaf))
    if read is None or leaf._grad is None or recorder.created_inside(leaf):
        return
    if before is None:
        raise CaptureError(
            "the step leaves gradients to which the next one would add. Begin it with optimizer.zero_grad()."
        )
    source = recorder.outside.get(id(before.raw))
    if source is not None and source[0] not in written:
        written[source[0]] = Write(source[0], recorder.ref(leaf._grad))
