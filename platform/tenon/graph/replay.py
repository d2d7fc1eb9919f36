"""``Replay``: a recording's program bound to its memory, and the function that runs it.

A call copies the arguments into static buffers, checks that parameters and state have not moved in memory,
runs the program, and updates Python's side: gradients, step counts, versions, schedules. ``entry.py``
generates that as one function.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from tenon.engine.types import Array, Nested
from tenon.graph import entry
from tenon.graph.graph import Node
from tenon.graph.program import Program
from tenon.graph.program_gradients import ProgramGradients
from tenon.graph.recording import FinalGradient, Leaves, Recording
from tenon.kernels.backend import Backend
from tenon.tensors.tensor import Tensor


class Replay:
    """Repeats a recorded call on other arguments."""

    def __init__(self, recording: Recording, backend: Backend, partitioned: bool = False) -> None:
        self.recording = recording
        self.backend = backend
        self.program = Program(recording.graph, backend)
        #: Whether the backward is a separate program.
        self.partitioned = partitioned
        self.lock = threading.Lock()
        #: The digest of the recording before passes changed it: see ``compare.fingerprint``.
        self.text = b""
        nodes = set(recording.graph.nodes)
        self.getters = [n.value for n in recording.graph.nodes if n.function == "input"]
        self.fed = [f for f in recording.fed if f.node in nodes]
        self.outside = [o for o in recording.outside if o.node in nodes]
        self.positions = [fed.position for fed in self.fed]
        #: Positions of the arguments among the leaves, and of those that are changed in place.
        self.arguments = recording.arguments
        self.changes = recording.changed_arguments
        #: How often it was bound; a backward that is bound to its values compares this.
        self.bindings = 0
        self.bind()
        if not partitioned:
            self._take_gradients()

    def bind(self) -> None:
        """Bind the program to the current memory."""
        arrays: dict[Node, np.ndarray] = {}
        buffers: dict[Node, np.ndarray] = {}
        for fed in self.fed:
            aval = fed.node.avals[0]
            buffers[fed.node] = arrays[fed.node] = np.zeros(aval.shape, aval.dtype)
        for outside in self.outside:
            arrays[outside.node] = outside.tensor.raw
        self.program.bind(arrays, {o.node: o.tensor._counter for o in self.outside})
        self.bindings += 1
        self.buffers = [(buffers[fed.node], fed.get) for fed in self.fed]
        self.places = [(o.tensor, o.tensor.raw) for o in self.outside]
        written = {w.target for w in self.recording.graph.writes}
        self.touched = [o.tensor for o in self.outside if o.node in written]
        for tensor in self.touched:
            tensor._counter()
        self.changed = [(find, buffers[n]) for n, find in self.recording.changed if n in buffers]
        #: The gradients in the program's memory.
        self.program_gradients = ProgramGradients(self.backend, self.program.plan.arena, self._generate)
        #: The gradients of leaves after a run: a tensor, None, or the index of one in ``program_gradients``.
        self.gradients = [(final, self._final_gradient(final)) for final in self.recording.gradients]
        #: ``body(leaves)`` if ``partitioned``: the result, and the output tensors by index.
        self.body: Callable[[Leaves], tuple[Nested, dict[int, Tensor]]]
        #: ``attempt(leaves)`` otherwise: the result, or ``entry.MISS`` if the recording is not valid.
        self.attempt: Callable[[Leaves], Nested]
        self._generate()
        self.program_gradients.store_counts()

    def _generate(self) -> None:
        """Generate the function that a call runs."""
        if self.partitioned:
            self.body = entry.body(self)
        else:
            self.attempt = entry.attempt(self, self.lock)

    def _final_gradient(self, final: FinalGradient) -> Tensor | int | None:
        """Return the tensor that a leaf receives as its gradient, None, or its index in
        ``program_gradients``."""
        if final.output is None:
            return final.external
        array = self.output(final.output)
        return (
            self.program_gradients.add(array, final)
            if self.program_gradients.owns(array)
            else Tensor._of(array, self.backend)
        )

    def _take_gradients(self) -> None:
        """Move the gradients of the recorded call into the program's memory, in which each run computes them.

        Otherwise both would be allocated until the first run ends.
        """
        for final, index in self.gradients:
            if not isinstance(index, int) or final.tensor is None or final.tensor._grad is None:
                continue
            own = self.program_gradients.tensors[index]
            if 0 not in own.raw.strides:
                np.copyto(own.raw, final.tensor._grad.raw)
                final.tensor._grad = own

    def fits(self) -> bool:
        """Whether parameters and state have the shapes and dtypes of the recording."""
        for outside in self.outside:
            raw, aval = outside.tensor.raw, outside.node.avals[0]
            if raw.__class__ is not np.ndarray or raw.shape != aval.shape or raw.dtype != aval.dtype:
                return False
        return True

    def prepare(self) -> bool:
        """Bind again if a parameter or state has moved in memory; return whether it has."""
        with self.lock:
            for tensor, raw in self.places:
                if tensor.raw is not raw:
                    self.bind()
                    return True
        return False

    @property
    def programs(self) -> list[Program]:
        """The programs that it runs."""
        return [self.program]

    def output(self, index: int) -> Array:
        """Return the buffer of output ``index`` of the graph."""
        return self.program.value(self.recording.graph.outputs[index])
