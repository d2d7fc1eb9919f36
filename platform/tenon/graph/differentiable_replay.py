"""A compiled forward with a compiled backward: two programs, linked by an autograd node."""

from __future__ import annotations

import threading
import weakref

import numpy as np

from tenon.engine.tape import CustomNode, StandIn
from tenon.engine.types import Array, Gradient, Nested
from tenon.errors import FreedGraphError, GradError, ModifiedValueError
from tenon.graph import entry
from tenon.graph.entry import MISS
from tenon.graph.graph import Node
from tenon.graph.partition import Backward
from tenon.graph.program import Program
from tenon.graph.recording import Leaves, Output, Recording
from tenon.graph.replay import Replay
from tenon.kernels.backend import Backend
from tenon.tensors.tensor import Tensor


class ForwardBackward:
    """One set of memory for a forward and its backward program, in use until the backward has run."""

    def __init__(self, recording: Recording, backward: Backward, backend: Backend) -> None:
        self.forward = Replay(recording, backend, partitioned=True)
        self.backward = backward
        self.backend = backend
        self.program = Program(backward.graph, backend)
        self.bound = -1
        #: The node whose saved values are in this memory; None if there is none.
        self.busy: weakref.ref[CompiledBackward] | None = None

    def bind(self) -> None:
        """Bind the backward to the forward's values, unless it is bound to the present ones."""
        if self.bound == self.forward.bindings:
            return
        tensors = {o.node: o.tensor for o in self.forward.recording.outside}
        arrays: dict[Node, np.ndarray] = {}
        for node, index in self.backward.saved:
            arrays[node] = self.forward.output(index)
        for node, source in self.backward.outside:
            arrays[node] = tensors[source].raw
        self.buffers = []
        for node in self.backward.tangents:
            arrays[node] = np.zeros(node.avals[0].shape, node.avals[0].dtype)
            self.buffers.append(arrays[node])
        self.program.bind({n: arrays[n] for n in self.backward.graph.inputs})
        self.watched = [tensors[source] for _, source in self.backward.outside]
        self.bound = self.forward.bindings

    @property
    def free(self) -> bool:
        """Whether the memory may be reused, as no backward pass can read its values any more."""
        return self.busy is None or self.busy() is None


class CompiledBackward(CustomNode):
    """The ``grad_fn`` of the outputs of one call."""

    __slots__ = ()

    memory: ForwardBackward | None
    #: The versions of external tensors that the backward reads, at the time of the forward.
    versions: list[int]

    def __init__(self, memory: ForwardBackward, inputs: list[Tensor], avals: list[Array]) -> None:
        super().__init__(
            StandIn("compiled_function", "CompiledFunctionBackward", len(avals)), memory.backend, inputs
        )
        self.output_avals = avals
        self.memory = memory
        self.versions = [t._version for t in memory.watched]

    def apply_tensors(self, grad: Gradient, create_graph: bool) -> list[Tensor | None]:
        """Run the backward program; return the gradients of the inputs."""
        if create_graph:
            raise GradError(
                "create_graph=True through a compiled function: its backward has no graph of its own. Call"
                " the function without tenon.compile for gradients of gradients."
            )
        memory = self.memory
        if memory is None:
            raise FreedGraphError(
                "Trying to backward through a compiled function a second time: its values are freed. Specify "
                "retain_graph=True at the first backward."
            )
        for tensor, version in zip(memory.watched, self.versions, strict=True):
            if tensor._version != version:
                raise ModifiedValueError(
                    "one of the variables needed for gradient computation has been modified by an inplace"
                    f" operation: a tensor of shape {list(tensor.raw.shape)} that a compiled function reads"
                    f" in its backward is at version {tensor._version}; expected version {version} instead."
                    " Call backward before the optimizer steps."
                )
        grads = [grad] if len(memory.buffers) == 1 else list(grad)
        for buffer, g in zip(memory.buffers, grads, strict=True):
            if g is None:
                buffer[...] = 0
            else:
                buffer[...] = g.raw
        memory.program.run()
        outputs = memory.backward.graph.outputs
        present = {i for i, g in enumerate(grads) if g is not None}
        return [
            (
                None
                if index is None or not depends & present
                else Tensor._of(memory.program.value(outputs[index]).copy(), memory.backend)
            )
            for index, depends in zip(memory.backward.results, memory.backward.depends, strict=True)
        ]

    def release(self) -> None:
        """Free the memory of the saved values."""
        if self.memory is not None:
            self.memory.busy = None
            self.memory = None


class DifferentiableReplay:
    """Repeats a recorded forward on other arguments; its outputs get a node that runs the recorded
    backward."""

    def __init__(self, recording: Recording, backward: Backward, backend: Backend) -> None:
        self.recording = recording
        self.arguments, self.changes = recording.arguments, recording.changed_arguments
        self.backward = backward
        self.backend = backend
        self.lock = threading.Lock()
        #: The digest of the recording before passes changed it: see ``compare.fingerprint``.
        self.text = b""
        self.tracked = sorted(
            {each.index for each in recording.returned if isinstance(each, Output) and each.tracked}
        )
        self.holds = entry.holds(recording)
        self.memories = [ForwardBackward(recording, backward, backend)]

    @property
    def programs(self) -> list[Program]:
        """The forward program and the backward program."""
        return [self.memories[0].forward.program, self.memories[0].program]

    def fits(self) -> bool:
        """Whether parameters and state have the shapes and dtypes of the recording."""
        return self.memories[0].forward.fits()

    def prepare(self) -> bool:
        """Return False: ``attempt`` itself checks whether memory has moved."""
        return False

    def attempt(self, leaves: Leaves) -> Nested:
        """Run one forward; return its result, or MISS. Each call uses its own memory until its backward."""
        with self.lock:
            if not self.holds():
                return MISS
            memory = next((p for p in self.memories if p.free), None)
            if memory is None:
                memory = ForwardBackward(self.recording, self.backward, self.backend)
                self.memories.append(memory)
            memory.forward.prepare()
            memory.bind()
            result, outputs = memory.forward.body(leaves)
            inputs = [t if position is None else leaves[position] for position, t in self.backward.targets]
            outs = [outputs[i] for i in self.tracked]
            node = CompiledBackward(memory, inputs, [t.raw for t in outs])
            for index, out in enumerate(outs):
                out._node, out._index, out._track = node, index, True
            memory.busy = weakref.ref(node)
            return result
