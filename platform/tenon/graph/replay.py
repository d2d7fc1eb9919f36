"""``Replay``: a recording's program bound to its memory, and one call of it.

A call copies the arguments into static buffers, makes sure that parameters and state still lie where they
lay, runs the program, and brings Python's side up to date: gradients, step counts, versions, schedules.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from tenon.core.pytree import tree_unflatten
from tenon.core.tensor import Tensor
from tenon.graph.program import Program
from tenon.graph.recording import Argument, Output, Recording


class Replay:
    """Runs a recorded call again, on other arguments."""

    def __init__(self, recording: Recording, backend: Any) -> None:
        self.recording = recording
        self.backend = backend
        self.program = Program(recording.graph, backend)
        self.lock = threading.Lock()
        kept = set(recording.graph.nodes)
        self.getters = [n.value for n in recording.graph.nodes if n.kind == "scalar" and n.op == "input"]
        self.fed = [f for f in recording.fed if f.node in kept]
        self.outside = [o for o in recording.outside if o.node in kept]
        self.places: list[tuple[Any, Any]] = []
        self.buffers: list[tuple[Any, Any]] = []
        self.gradients: list[tuple[Any, Any]] = []
        self.touched: list[Any] = []
        #: Arguments among the leaves, and those that are changed in place.
        self.arguments = recording.arguments
        self.changes = recording.changed_arguments
        #: How often it was bound; whoever lies over its values looks here.
        self.bindings = 0
        self.bind()

    def bind(self) -> None:
        """Lay the program over the memory of now."""
        arrays: dict[Any, Any] = {}
        buffers = {}
        for fed in self.fed:
            aval = fed.node.avals[0]
            buffers[fed.node] = arrays[fed.node] = np.zeros(aval.shape, aval.dtype)
        for outside in self.outside:
            arrays[outside.node] = outside.tensor.raw
        self.program.bind(arrays)
        self.bindings += 1
        self.buffers = [(buffers[fed.node], fed.get) for fed in self.fed]
        self.places = [(o.tensor, o.tensor.raw) for o in self.outside]
        written = {w.target for w in self.recording.graph.writes}
        self.touched = [o.tensor for o in self.outside if o.node in written]
        self.changed = [(find, buffers[n]) for n, find in self.recording.changed if n in buffers]
        self.gradients = [
            (
                left.leaf,
                left.held if left.output is None else Tensor._of(self.output(left.output), self.backend),
            )
            for left in self.recording.gradients
        ]

    def fits(self) -> bool:
        """Whether parameters and state have the shapes and dtypes of the recording."""
        for outside in self.outside:
            raw, aval = outside.tensor.raw, outside.node.avals[0]
            if raw.__class__ is not np.ndarray or raw.shape != aval.shape or raw.dtype != aval.dtype:
                return False
        return True

    def prepare(self) -> None:
        """Bind anew if a parameter or state has got other memory."""
        for tensor, raw in self.places:
            if tensor.raw is not raw:
                self.bind()
                return

    @property
    def programs(self) -> list[Program]:
        """What it runs."""
        return [self.program]

    def __call__(self, leaves: list[Any]) -> Any:
        """One run on the arguments whose flat list is ``leaves``."""
        self.prepare()
        return self.run(leaves)[0]

    def run(self, leaves: list[Any]) -> tuple[Any, dict[int, Any]]:
        """The result, and the tensors made for it by number of the graph's output."""
        for buffer, get in self.buffers:
            buffer[...] = get(leaves)
        self.program.run([get() for get in self.getters])
        recording = self.recording
        for tensors in recording.counters:
            for step in tensors:
                step.raw += 1
        for tensor in self.touched:
            counter = tensor._version_counter
            if counter is None:
                tensor._version_counter = [1]
            else:
                counter[0] += 1
        for find, buffer in self.changed:
            tensor = find(leaves)
            tensor.raw[...] = buffer
            tensor._counter()[0] += 1
        for find, value in self.gradients:
            find(leaves)._grad = value
        made: dict[int, Any] = {}
        flat = [self._returned(each, leaves, made) for each in recording.returned]
        for effect in recording.after:
            effect()
        if recording.spec is None or recording.spec.is_leaf():
            return flat[0], made
        return tree_unflatten(flat, recording.spec), made

    def output(self, index: int) -> Any:
        """The buffer of an output of the graph."""
        return self.program.value(self.recording.graph.outputs[index])

    def _returned(self, each: Any, leaves: list[Any], made: dict[int, Any]) -> Any:
        if each.__class__ is Output:
            made[each.index] = Tensor._of(self.output(each.index).copy(), self.backend)
            return made[each.index]
        return leaves[each.position] if each.__class__ is Argument else each
