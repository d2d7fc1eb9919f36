"""``CaptureRecorder``: a recorder that can undo the changes of the captured call to tensors and optimizers.

``Options`` configures it: which composites are recorded as one call, and whether Python may read values.

Next: ``capture.py`` runs a function under it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from tenon.engine import scopes
from tenon.engine.interceptor import SLOT
from tenon.engine.op import Composite, Op
from tenon.engine.types import Arguments, Array, Attrs, Nested
from tenon.engine.watchers import WATCHERS
from tenon.errors import CaptureError
from tenon.export.captured import CapturedGraph, Guard
from tenon.export.effects.assigned import AssignedTensors
from tenon.export.places import Path
from tenon.export.sizes import Expression
from tenon.export.symbolic.traced_numbers import is_traced, traced_places, untraced
from tenon.graph.graph import Node, NodeArgument, Ref
from tenon.graph.recorder import Recorder
from tenon.graph.scalars import Reading, Scalar
from tenon.graph.values import Values
from tenon.kernels.backend import backend_named
from tenon.random.draws import Draw
from tenon.random.generator import Generator, stream_of
from tenon.tensors.call_site import user_line
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.engine.tape import Node as TapeNode
    from tenon.nn.module import Module
    from tenon.optim.optimizer import Optimizer
    from tenon.optim.types import State


@dataclass(frozen=True, slots=True)
class Options:
    """How a call is captured; see ``capture``."""

    guards: bool = False
    #: Names of composites, or of their kinds, that are recorded as one call; None: all are.
    whole: Set[str] | None = None
    as_run: bool = False
    #: Whether arguments may change in place; the graph writes to them.
    changes_arguments: bool = False


class CaptureRecorder(Recorder):
    """Records one call. ``undo`` restores the previous tensors, gradients and optimizer state."""

    records_again = False

    def __init__(self, options: Options) -> None:
        super().__init__(backend_named("cpu"), strict=True)
        self.options = options
        self.graph = self.captured = CapturedGraph()
        self.values = Values(self.captured, self.backend)
        #: The conditions by which Python branched.
        self.found_guards: list[Guard] = []
        #: Argument -> the axes whose sizes may change; see ``any_size``.
        self.free_axes: Mapping[str, Mapping[int, object]] = {}
        #: Values from outside that Python read: their input nodes, and where.
        self.read_states: dict[Node, str] = {}
        #: The scalar inputs: node, key, value of the captured run, name of the option.
        self.scalar_inputs: list[tuple[Node, Hashable, float, str]] = []
        #: By id of the array, tensors that were written and their values before.
        self.before: dict[int, tuple[Tensor, Array, Array]] = {}
        #: By id, these and their bases, with the history that autograd had of them.
        self._history: dict[int, tuple[Tensor, TapeNode | None, int, bool]] = {}
        #: What it assigned to attributes of modules.
        self.assigned = AssignedTensors()
        #: By id, leaves whose gradient was replaced, and the gradient before.
        self.gradients_before: dict[int, tuple[Tensor, Tensor | None]] = {}
        #: By id, the optimizers that made steps, and their state before.
        self.states_before: dict[int, tuple[Optimizer, dict[Tensor, State]]] = {}
        #: Whether Python reads values only to check them.
        self._verifying = False
        #: By id, the generators that the call draws from, beside the process's, and their state before.
        self.generators_before: dict[int, tuple[Generator, np.ndarray]] = {}

    def run(self, op: Op, args: Arguments, attrs: Attrs) -> Nested:
        """Execute ``op`` and record it; a composite as its parts, unless it is to stay whole."""
        traced: tuple[int, ...] = ()
        computed: dict[Path, Expression] = {}
        if self.any_size:
            traced = tuple(i for i, arg in enumerate(args) if is_traced(arg))
            computed = traced_places(args, attrs)
            if op.name == "squeeze":
                _decide_squeeze(args[0], attrs)
            args, attrs = untraced(args), untraced(attrs)
        make = attrs.get("make")
        if isinstance(make, Draw) and make.generator is not None:
            state = (make.generator, stream_of(make.generator).state())
            self.generators_before.setdefault(id(make.generator), state)
        whole = self.options.whole
        if whole is not None and isinstance(op, Composite) and not {op.name, op.kind.value} & whole:
            return SLOT.parts(op, args, attrs)
        result = super().run(op, args, attrs)
        if traced and self.graph.nodes[-1].op is op:
            self.captured.traced_arguments[self.graph.nodes[-1]] = traced
        if computed and self.graph.nodes[-1].op is op:
            self.captured.decisions.computed[self.graph.nodes[-1]] = computed
        return result

    def made(self, array: Array) -> None:
        """Callback: ``array`` was created from Python data; its constant belongs to the running module."""
        before = len(self.graph.nodes)
        super().made(array)
        for node in self.graph.nodes[before:]:
            node.module, node.where = scopes.path_of(scopes.running.place), user_line()

    def _has_static_shape(self, op: Op, refs: tuple[NodeArgument, ...], attrs: Attrs) -> bool:
        return self.options.as_run or super()._has_static_shape(op, refs, attrs)

    # --- what to undo ---

    def assigning(self, module: Module, name: str) -> None:  # type: ignore[override] # it may be any object
        """Callback: an attribute of a module is about to be assigned."""
        if not self.options.as_run and self._listens():
            self.assigned.note(module, name)

    def writing(self, tensor: Tensor) -> None:
        """Callback: the memory of ``tensor`` is about to change; save its values."""
        self._keep(tensor)
        super().writing(tensor)

    def input_of(self, tensor: Tensor) -> Node:
        """Return the input for a tensor from outside."""
        entry = self.values.find(tensor.raw) or self._add_input(tensor)
        node = entry.storage.node
        assert node is not None, "it was created inside"
        return node

    def _keep(self, tensor: Tensor) -> None:
        raw = tensor.raw
        for each in (tensor, *(tensor._view or ())[:1]):
            self._history.setdefault(id(each), (each, each._node, each._index, each._track))
        if id(raw) not in self.before and hasattr(raw, "copy"):
            self.before[id(raw)] = (tensor, raw, raw.copy())

    def gradient_read(self, leaf: Tensor) -> None:
        """Callback: ``leaf.grad`` is read, and may be replaced."""
        self.gradients_before.setdefault(id(leaf), (leaf, leaf._grad))
        super().gradient_read(leaf)

    def gradient_set(self, leaf: Tensor) -> None:
        """Callback: ``leaf.grad`` is about to become another tensor, or None."""
        self.gradients_before.setdefault(id(leaf), (leaf, leaf._grad))
        super().gradient_set(leaf)

    def _register(self, optimizer: Optimizer) -> None:
        if id(optimizer) not in self.states_before:
            saved = {p: dict(state) for p, state in optimizer.state.items()}
            self.states_before[id(optimizer)] = (optimizer, saved)
        super()._register(optimizer)

    def undo(self, keep_states: bool = False) -> None:
        """Restore the tensors that the call wrote, gradients, and the state of optimizers.

        With ``keep_states`` the state that the call created stays, with its values before the first write.
        """
        for generator, state in self.generators_before.values():
            stream_of(generator).set_state(state)
        self.assigned.restore()
        for _, raw, values in reversed(self.before.values()):
            raw[...] = values
        for tensor, node, index, track in self._history.values():
            if tensor._node is not node:
                tensor._node, tensor._index, tensor._track = node, index, track
        for leaf, grad in self.gradients_before.values():
            leaf._grad = grad
        for optimizer, saved in () if keep_states else self.states_before.values():
            optimizer.state.clear()
            optimizer.state.update(saved)

    def present(self) -> dict[int, np.ndarray]:
        """Return copies, by id of the array, of the tensors that the call wrote and of optimizer state."""
        arrays = {id(raw): raw for _, raw, _ in self.before.values()}
        for optimizer, _ in self.states_before.values():
            for state in optimizer.state.values():
                arrays |= {id(value.raw): value.raw for value in state.values() if isinstance(value, Tensor)}
        return {key: np.array(raw) for key, raw in arrays.items()}

    def reset_new_states(self) -> None:
        """Set to zero the state that an optimizer initialised with its first result, such as a momentum."""
        for optimizer, saved in self.states_before.values():
            for p, state in optimizer.state.items():
                for name, value in state.items():
                    if not isinstance(value, Tensor) or name in saved.get(p, {}):
                        continue
                    entry = self.values.find(value.raw)
                    if entry is not None and entry.storage.node is None:
                        value.raw[...] = 0

    def created_parameters(self) -> bool:
        """Whether the call created parameters or buffers of modules that ran: lazy ones."""
        tensors = (t for root in self.roots.values() for t in (*root.parameters(), *root.buffers()))
        return any(self.created_inside(tensor) for tensor in tensors)

    def check_numbers(self) -> None:
        """Raise CaptureError if an optimizer keeps state as Python numbers, which a graph cannot update."""
        for optimizer, saved in self.states_before.values():
            for p, state in optimizer.state.items():
                for name, value in state.items():
                    before = saved.get(p, {}).get(name)
                    if not isinstance(value, Tensor) and value is not before and value != before:
                        raise CaptureError(
                            f"{type(optimizer).__name__} keeps its state {name!r} as a "
                            f"{type(value).__name__}, which changes from {before!r} to {value!r}: a graph "
                            "updates tensors only. Use another optimizer."
                        )

    def refuse_shared(self, written: list[Node]) -> None:
        """Raise CaptureError if a tensor that is written shares memory with another input."""
        for one in written:
            for node, tensor in self.outside.values():
                a, b = one.value.raw, tensor.raw
                if node is not one and np.may_share_memory(a, b) and np.shares_memory(a, b):
                    raise CaptureError(
                        f"two tensors from outside share memory ({one.label or one!r} and "
                        f"{node.label or node!r}) and one of them is written. Give them memory of their own, "
                        "or make the view inside the captured function."
                    )

    # --- numbers of optimizers ---

    def _scalar(self, key: Hashable, get: Reading, value: float, label: str) -> Scalar:
        known = key in self._scalars
        scalar = super()._scalar(key, get, value, label)
        if not known:
            self.scalar_inputs.append((scalar.node, key, value, label))
        return scalar

    def step_count(self, optimizer: Optimizer, state: State, steps: int) -> Scalar | int:
        """Return the number of this step of a parameter; remember the state that counts it."""
        if isinstance(state["step"], Tensor):
            self._keep(state["step"])
        return super().step_count(optimizer, state, steps)

    def guard_scalar(self, scalar: Scalar, question: str, other: object, answer: float) -> None:
        """Record a guard: a question about a scalar must have this answer."""
        right = other.node.out() if isinstance(other, Scalar) else other
        self.found_guards.append(Guard(scalar.node.out(), question, right, answer, user_line()))

    # --- values that Python reads ---

    @contextlib.contextmanager
    def verifying(self) -> Iterator[None]:
        """Permit Python to read values, only to raise an error for invalid ones."""
        before, self._verifying = self._verifying, True
        try:
            yield
        finally:
            self._verifying = before

    def _host_read(self, raw: Array) -> np.ndarray:
        """Replace ``backend.to_host``: Python reads the values of ``raw``."""
        if self.options.as_run or self._verifying or not self._listens():
            return self._read(raw)
        entry = self.values.find(raw)
        if entry is None:  # a tensor from outside that no op has read
            return self._read(raw)
        ref, where = self.values.read(entry), user_line()
        states = states_alone(ref.node)
        if states is not None:
            for node in states:
                self.read_states.setdefault(node, where)
            return self._read(raw)
        if not self.options.guards or raw.size != 1 or raw.dtype.kind not in "biu":
            self._refuse_read(raw, where)
        question, answer = ("bool", bool(raw)) if raw.dtype.kind == "b" else ("int", int(raw))
        self.found_guards.append(Guard(ref, question, None, answer, where))
        return self._read(raw)

    def _refuse_read(self, raw: Array, where: str) -> NoReturn:
        kept = (
            "guards=True keeps conditions on booleans and integers, not on other values"
            if self.options.guards
            else "guards=True keeps the decision, as a condition that every run checks"
        )
        raise CaptureError(
            f"Python reads the value of a tensor of shape {list(raw.shape)} and dtype {raw.dtype} at {where} "
            "(an if, a loop, item(), numpy(), float() or a print): the graph would hold for this value only. "
            f"Compute with where(), or return the tensor and decide after the call; {kept}."
        )

    def guard_value(self, what: str, get: Callable[[], object]) -> None:
        """Do nothing: the graph reproduces this call, with the current value of ``get()``."""

    def expect(self, condition: Tensor, value: Tensor, what: str) -> Tensor | None:
        """Raise an error: a run of the graph cannot stop in the middle."""
        raise CaptureError(
            f"a GradScaler makes or skips a step depending on the gradients ({what}), at {user_line()}. "
            "Capture a step without it: a graph makes the same step in every run."
        )

    def unsupported(self, what: str) -> None:
        """Raise an error for a side effect that a graph has no node for."""
        if self._listens():
            raise CaptureError(
                f"{what} cannot be captured, at {user_line()}. Do it outside of the captured function."
            )

    def reading(self, raw: Array, what: str) -> None:
        """Raise an error for a shape that depends on values."""
        if self._listens() and not self.options.as_run:
            entry = self.values.find(raw)
            states = set() if entry is None else states_alone(self.values.read(entry).node)
            for node in states or ():
                self.read_states.setdefault(node, user_line())
            if states is None:
                raise CaptureError(
                    f"{what} gives a result whose shape depends on the data, at {user_line()}. A graph has "
                    "fixed shapes: use a form with a fixed shape (masked_fill, where), or leave this part "
                    "out."
                )


def _decide_squeeze(tensor: Tensor, attrs: Attrs) -> None:
    """Compare the sizes by which ``squeeze`` removes axes with 1, so that guards state what it did."""
    nothing_removed = tuple(attrs["shape"]) == tensor.raw.shape
    if nothing_removed or not attrs["explicit"]:
        for size in tensor.shape:
            bool(size == 1)


def states_alone(node: Node) -> set[Node] | None:
    """Return the states that ``node`` is computed from, beside constants; None if it depends on arguments."""
    states: set[Node] = set()
    seen: set[Node] = set()
    stack = [node]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.effect or node.kind == "scalar" or (node.kind == "input" and node.value is None):
            return None
        if node.kind == "input":
            states.add(node)
        stack += [ref.node for ref in node.refs]
    return states


def captured_values(tensors: Sequence[Tensor]) -> tuple[CapturedGraph, tuple[Ref, ...]] | None:
    """Return the graph being captured, as far as it is, and the values that ``tensors`` have in it now.

    For hooks that run during a ``capture``; None if nothing is captured in this thread.
    """
    recorder = WATCHERS.recorder
    if not isinstance(recorder, CaptureRecorder) or not recorder.listening():
        return None
    return recorder.captured, tuple(map(recorder.ref, tensors))
