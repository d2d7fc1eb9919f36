"""``Runner``: runs a captured graph op by op, with state and scalars of its own.

It is the reference: it computes test vectors, with which targets are verified.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tenon.engine.types import Array, Nested
from tenon.errors import ArgumentError, CaptureError, DTypeError, ShapeError
from tenon.export.axes import axes_of, symbol_sizes
from tenon.export.symbolic.size_guards import check_guards
from tenon.graph.graph import Node, NodeArgument, Ref
from tenon.graph.interpreter import Interpreter
from tenon.graph.scalars import QUESTIONS
from tenon.tensors.creation.create import wrap
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.export.captured import CapturedGraph, Guard
    from tenon.export.symbolic.resolved import AtSizes


#: The maximum number of sizes for which a runner caches the graph.
KEPT = 16


class Runner:
    """Calls a captured graph as the function was called. Writes go to the runner's copies of the state.

    >>> import tenon
    >>> model = tenon.nn.Linear(2, 1)
    >>> optimizer = tenon.optim.SGD(model.parameters(), lr=0.1)
    >>> def step(x):
    ...     optimizer.zero_grad()
    ...     loss = model(x).square().mean()
    ...     loss.backward()
    ...     optimizer.step()
    ...     return loss
    >>> runner = Runner(tenon.export.capture(step, tenon.ones(4, 2), train=True))
    >>> first, second = runner(tenon.ones(4, 2)), runner(tenon.ones(4, 2))
    >>> bool(second < first)
    True
    >>> runner.scalars["optimizer.lr"] = 0.0
    """

    def __init__(self, graph: CapturedGraph) -> None:
        self.graph = graph
        #: By label, the present arrays of parameters, buffers and optimizer state.
        self.state: dict[str, np.ndarray] = self._initial_state()
        #: The graph at the sizes of earlier runs.
        self._at: AtSizes = {}
        #: By name, the arguments that the last run changed in place.
        self.changed: dict[str, np.ndarray] = {}
        #: By name, the number that the next run reads: set a learning rate here.
        self.scalars: dict[str, float] = {scalar.name: scalar.value for _, scalar in graph.scalars}

    def _initial_state(self) -> dict[str, np.ndarray]:
        return {node.label: np.array(as_array(node.value)) for node in self.graph.states}

    def __call__(self, *args: Nested, **kwargs: Nested) -> Nested:
        """Run once; return what the function returned, with new tensors."""
        leaves = self.graph.signature.flatten(args, kwargs)
        outputs = self.run([as_array(leaf) for leaf in leaves])
        given = dict(zip(self.graph.signature.inputs, leaves, strict=True))
        for name, array in self.changed.items():
            given[name].copy_(wrap(array, device="cpu"))
        return self.graph.signature.unflatten([wrap(array, device="cpu") for array in outputs])

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run once on arrays for the arguments; return the outputs of the graph."""
        graph = self._fitting(argument_sizes(self.graph, arrays))
        values: dict[Node, Array] = {node: self.state[node.label] for node in graph.states}
        values |= zip(graph.arguments, arrays, strict=True)
        numbers = [self.scalars[scalar.name] for _, scalar in graph.scalars]
        interpreter = Interpreter(graph)
        outputs, writes = interpreter.run(values, numbers)
        for guard in graph.guards:
            check_guard(guard, interpreter.values)
        results = [np.array(array) for array in outputs]
        for target, array in writes.items():
            own = self.changed if target.value is None else self.state
            own[target.label] = np.array(array)
        for _, scalar in graph.scalars:
            self.scalars[scalar.name] += scalar.increment
        return results

    def _fitting(self, sizes: Mapping[str, int]) -> CapturedGraph:
        """Return the graph at these sizes of its symbols."""
        if not sizes:
            return self.graph
        key = tuple(sorted(sizes.items()))
        if key not in self._at:
            if len(self._at) >= KEPT:
                self._at.clear()
            self._at[key] = self.graph.at(**sizes)
        return self._at[key]


class SingleRun(Runner):
    """A runner for one run: it reads the graph's parameters and state where they are, without a copy.

    A run replaces arrays in ``state`` and writes into none, so that the graph's stay as they are. Of a graph
    with free sizes, what earlier runs resolved is read too, unless the graph was edited.
    """

    def __init__(self, graph: CapturedGraph) -> None:
        super().__init__(graph)
        if graph.symbols:
            self._at = graph.resolved.of(graph)

    def _initial_state(self) -> dict[str, np.ndarray]:
        return {node.label: as_array(node.value) for node in self.graph.states}


def argument_sizes(graph: CapturedGraph, arrays: Sequence[np.ndarray]) -> dict[str, int]:
    """Return the sizes of the graph's symbols in ``arrays`` for its arguments.

    ArgumentError, DTypeError or ShapeError, which names the argument, unless they fit.
    """
    names = graph.signature.inputs
    if len(arrays) != len(names):
        raise ArgumentError(f"{len(arrays)} arrays were given for the arguments {', '.join(names)}.")
    axes = axes_of(graph)
    for node, array in zip(graph.arguments, arrays, strict=True):
        name, aval, free = node.label, node.avals[0], axes.get(node.label, {})
        if array.dtype != aval.dtype:
            raise DTypeError(f"argument {name!r} has dtype {array.dtype}, but {aval.dtype} was captured.")
        if array.ndim != aval.ndim:
            raise ShapeError(
                f"argument {name!r} has shape {list(array.shape)}, but {list(aval.shape)} was captured."
            )
        for axis, (given, own) in enumerate(zip(array.shape, aval.shape, strict=True)):
            if given != own and axis not in free:
                raise ShapeError(
                    f"argument {name!r} has shape {list(array.shape)}, but {list(aval.shape)} was captured: "
                    f"dimension {axis} is {given}, not {own}. Capture with dynamic= for sizes that change."
                )
    if not axes:
        return {}
    shapes = {node.label: array.shape for node, array in zip(graph.arguments, arrays, strict=True)}
    sizes, places = symbol_sizes(axes, shapes)
    check_guards(graph.size_guards, sizes)
    for symbol, size in sizes.items():
        graph.symbols[symbol].check(f"{symbol} ({places[symbol]})", size)
    return sizes


def check_guard(guard: Guard, values: Mapping[Ref, Array]) -> None:
    """Raise CaptureError unless ``values`` give the answer of the captured run."""
    value = _plain(guard.value, values)
    answer = QUESTIONS[guard.question](value, _plain(guard.other, values))
    if answer != guard.answer:
        raise CaptureError(
            f"Python decided by a value at {guard.where or 'an unknown place'}: it was {guard.answer!r} when "
            f"the function was captured and is {answer!r} now, so the graph does not hold. Capture the "
            "function again, or compute with where()."
        )


def _plain(value: NodeArgument, values: Mapping[Ref, Array]) -> float:
    array = values[value] if value.__class__ is Ref else value
    return array.item() if hasattr(array, "shape") else array


def as_array(value: object) -> np.ndarray:
    """Return the array of a tensor, or convert other data by NumPy."""
    if isinstance(value, Tensor):
        return value._backend.to_host(value.raw)
    return np.asarray(value)
