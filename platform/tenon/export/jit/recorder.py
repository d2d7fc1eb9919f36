"""``TraceRecorder``: records a call for ``trace``: it notes what Python reads, and where gradients stop.

Next: ``recording.py`` runs functions under it.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from types import FrameType

import numpy as np

from tenon import dtypes
from tenon.autograd.function import FunctionNode
from tenon.engine.op import Composite, table
from tenon.engine.types import Array
from tenon.export.recorder import CaptureRecorder, Options, states_alone
from tenon.graph.graph import Node, Ref
from tenon.tensors.call_site import OURS, user_line
from tenon.tensors.tensor import Tensor

#: The phase of ``alias`` nodes at which gradients stop.
DETACH = "detach"
#: Methods by which Python reads a tensor, and what each makes of it.
_READERS = {
    "__bool__": "a Python boolean",
    "__int__": "a Python integer",
    "__index__": "a Python integer",
    "__float__": "a Python float",
    "__complex__": "a Python complex number",
    "item": "a Python number",
    "tolist": "a Python list",
    "numpy": "a NumPy array",
    "__array__": "a NumPy array",
}


class TracerWarning(Warning):
    """Something in a traced function that the trace does not repeat for other inputs."""


class _State(threading.local):
    """Whether the thread runs a function that is traced."""

    tracing = False


STATE = _State()


def is_tracing() -> bool:
    """Whether a function that ``trace`` was given is running."""
    return STATE.tracing


@dataclass(frozen=True, slots=True)
class Note:
    """A warning about a line of the traced function."""

    text: str
    file: str
    line: int


class TraceRecorder(CaptureRecorder):
    """Records one call of a traced function.

    Values that Python reads become constants, with a note. A tensor without gradient whose value was computed
    from one with gradient (``detach()``, ``no_grad()``) becomes an ``alias`` node of phase "detach", so that
    gradients of the trace stop there too. ``tracked``: arguments of floating dtype come with gradient.
    """

    def __init__(self, notes: dict[Note, None], tracked: bool) -> None:
        super().__init__(Options())
        self.notes = notes
        self._tracked = tracked
        self._flow: dict[Node, bool] = {}
        self._detached: dict[Ref, Ref] = {}

    def ref(self, tensor: Tensor) -> Ref:
        """Return the graph value of ``tensor``, behind a detach node if no gradient flows to it."""
        ref = super().ref(tensor)
        if tensor._track or tensor._stale():
            if isinstance(tensor._node, FunctionNode):
                self._note_function(tensor._node)
            return ref
        if ref.scalar or not _is_floating(ref.aval.dtype) or not self._flows(ref.node):
            return ref
        if ref not in self._detached:
            node = self.graph.call(table["alias"], (ref,), {}, (ref.aval,))
            node.phase, node.where = DETACH, user_line()
            self._detached[ref] = node.out()
        return self._detached[ref]

    def _flows(self, node: Node) -> bool:
        """Whether a gradient can flow to what ``node`` computes."""
        known = self._flow.get(node)
        if known is None:
            if node.kind == "input":
                known = self._tracked if node.value is None else bool(node.value.requires_grad)
                known = known and _is_floating(node.avals[0].dtype)
            elif node.kind != "call" or node.phase == DETACH:
                known = False
            else:
                passes = node.op.differentiable or isinstance(node.op, Composite) or node.name == "put_view"
                known = passes and any(self._flows(ref.node) for ref in node.refs)
            self._flow[node] = known
        return known

    def _note_function(self, node: FunctionNode) -> None:
        self._note(
            f"The autograd function {node.function.__name__} is recorded by what its forward computes. Its "
            "backward is not part of the trace: gradients of the trace are those of its forward."
        )

    def _host_read(self, raw: Array) -> np.ndarray:
        """Replace ``backend.to_host``: Python reads the values of ``raw``, which become constants."""
        if self._listens() and not self._verifying:
            entry = self.values.find(raw)
            node = None if entry is None else self.values.read(entry).node
            if node is None or states_alone(node) != set():
                self._note(
                    f"Converting a tensor to {_conversion()} might cause the trace to be incorrect. We can't "
                    "record the data flow of Python values, so this value will be treated as a constant in "
                    "the future. This means that the trace might not generalize to other inputs!"
                )
        return self._read(raw)

    def _note(self, text: str) -> None:
        file, _, line = user_line().rpartition(":")
        self.notes[Note(text, file, int(line or 0))] = None


def _is_floating(dtype: np.dtype) -> bool:
    dtype_found = dtypes.FROM_NUMPY.get(dtype)
    return dtype_found is not None and (dtype_found.is_floating_point or dtype_found.is_complex)


def _conversion() -> str:
    """Return what the innermost method that reads a tensor makes of it."""
    frame: FrameType | None = sys._getframe(2)
    conversion = "a Python value"
    while frame is not None and frame.f_code.co_filename.startswith(OURS):
        conversion = _READERS.get(frame.f_code.co_name, conversion)
        frame = frame.f_back
    return conversion
