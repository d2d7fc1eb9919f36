"""``Vectors``: test inputs of a captured function, the expected outputs, and the tolerance.

A target passes if it computes the outputs of all runs within the tolerance. The runs of a training step
follow one another, each from the state after the previous one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tenon.engine.types import Nested
from tenon.errors import CaptureError, LoweringError
from tenon.export.captured import CapturedGraph
from tenon.export.runner import Runner, as_array
from tenon.graph.graph import Node
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.creation.create import wrap
from tenon.tensors.pytree import tree_flatten
from tenon.tensors.tensor import Tensor

#: The tolerance of floats, absolute and relative to the output.
TOLERANCE = 1e-5


@dataclass(frozen=True, slots=True)
class Run:
    """One run: the arrays of the arguments, and those of the outputs, both in the order of the signature."""

    inputs: list[np.ndarray]
    outputs: list[np.ndarray]


@dataclass(frozen=True, slots=True)
class Vectors:
    """The runs, and the tolerance of outputs: ``absolute + relative * |output|``."""

    runs: list[Run]
    absolute: float = TOLERANCE
    relative: float = TOLERANCE

    def excess(self, results: Sequence[Sequence[np.ndarray]]) -> float:
        """Return the largest difference between ``results`` and the outputs, in units of the tolerance.

        Up to 1 is a pass. Infinity for a NaN, another shape or another number of outputs.
        """
        worst = 0.0
        if len(results) != len(self.runs):
            return float("inf")
        for run, result in zip(self.runs, results, strict=True):
            if len(result) != len(run.outputs):
                return float("inf")
            for own, other in zip(run.outputs, result, strict=True):
                worst = max(worst, self._excess(own, other))
        return worst

    def _excess(self, own: np.ndarray, other: np.ndarray) -> float:
        if own.shape != other.shape:
            return float("inf")
        if not own.size:
            return 0.0
        exact = own.dtype.kind not in "fcV"
        if exact:
            return 0.0 if np.array_equal(own, other) else float("inf")
        wide = np.complex128 if own.dtype.kind == "c" else np.float64
        left, right = own.astype(wide), other.astype(wide)
        same = (left == right) | (np.isnan(left) & np.isnan(right))
        with np.errstate(invalid="ignore"):
            ratio = np.abs(left - right) / (self.absolute + self.relative * np.abs(left))
        ratio = np.where(same, 0.0, ratio)
        worst = float(np.max(ratio))
        return worst if worst == worst else float("inf")


def make_vectors(
    graph: CapturedGraph,
    calls: Sequence[tuple[Nested, ...]],
    tolerance: float | None = None,
    model: Callable[..., Nested] | None = None,
) -> Vectors:
    """Run ``graph`` on the arguments of each call, in order, and return the test vectors.

    With ``model``, the function that was captured, the expected outputs are its results; CaptureError if the
    graph's differ. The default tolerance is 1e-5; of a model in 8-bit integers one step, a 255th of the
    largest output.
    """
    random = [node for node in graph.calls if node.effect]
    if random:
        places = ", ".join(f"{node.name} ({node.module or node.where})" for node in random[:5])
        raise LoweringError(
            f"the graph draws random numbers, so that no two runs can be compared: {places}. Call eval() on "
            "dropout layers before the capture, or pass the numbers as arguments."
        )
    runner = Runner(graph)
    runs = []
    for call in calls:
        inputs = [as_array(leaf) for leaf in graph.signature.flatten(call, {})]
        inputs = [np.array(array) for array in inputs]
        runs.append(Run(inputs, runner.run(inputs)))
    if model is not None and not graph.writes:
        runs = _of_model(graph, runs, model)
    if tolerance is not None:
        return Vectors(runs, tolerance, tolerance)
    if any(_in_8_bits(node) for node in graph.calls):
        floats = [out for run in runs for out in run.outputs if out.dtype.kind == "f" and out.size]
        finite = [np.abs(out[np.isfinite(out)]) for out in floats]
        largest = max((float(out.max(initial=0.0)) for out in finite), default=0.0)
        return Vectors(runs, max(largest / 255, TOLERANCE), TOLERANCE)
    return Vectors(runs)


def _in_8_bits(node: Node) -> bool:
    """Whether a call computes in 8-bit integers; a layer alone returns floats, as its input is."""
    return node.name.startswith("int8_") or any(a.dtype.name in ("int8", "uint8") for a in node.avals)


def _of_model(graph: CapturedGraph, runs: Sequence[Run], model: Callable[..., Nested]) -> list[Run]:
    """Return the runs with the outputs that ``model`` computes; CaptureError if the graph's are others."""
    result = []
    for run in runs:
        args, kwargs = graph.signature.arguments_of([wrap(a, device="cpu") for a in run.inputs])
        with no_grad():
            leaves, _ = tree_flatten(model(*args, **kwargs))
        own = [np.array(as_array(leaf)) for leaf in leaves if isinstance(leaf, Tensor)]
        excess = Vectors([Run(run.inputs, own)]).excess([run.outputs])
        if excess > 1:
            raise CaptureError(
                f"the graph and the model compute different results: {excess:.3g} times the tolerance of "
                f"{TOLERANCE}. Python may have decided by something that changed since the capture."
            )
        result.append(Run(run.inputs, own))
    return result
