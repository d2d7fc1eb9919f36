"""Branches on sizes: captures at several sizes must take the same ones, which become guards of the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tenon.errors import CaptureError
from tenon.export.captured import CapturedGraph
from tenon.export.simplify import drop_unread
from tenon.export.sizes import Size, Sizes, at
from tenon.export.symbolic.fitter import probes
from tenon.export.symbolic.size_guards import Decisions, SizeGuard, distinct
from tenon.graph.scalars import question_text


class OtherBranchError(CaptureError):
    """Python took another branch at other sizes: captures at sizes nearer to the example's may work."""


class SameBranches:
    """Captures at several sizes; OtherBranchError unless Python decides as in the first capture."""

    def __init__(self, capture_at: Callable[[Sizes], CapturedGraph]) -> None:
        self.capture_at = capture_at
        self._first: tuple[Sizes, Decisions] | None = None

    def __call__(self, sizes: Sizes) -> CapturedGraph:
        """Capture at these sizes of the symbols."""
        graph = self.capture_at(sizes)
        if self._first is None:
            self._first = sizes, graph.decisions
            return graph
        first_sizes, first = self._first
        pair = first.differ(graph.decisions)
        if pair is not None:
            one, other = _asked(first, pair[0]), _asked(graph.decisions, pair[1])
            where = pair[0].where or "an unknown place"
            raise OtherBranchError(
                f"Python branches by sizes at {where}: {one} for {_text(first_sizes)}, and {other} for "
                f"{_text(sizes)}. A graph holds for one branch: capture with an example well inside of its "
                "sizes, compute without the branch, or leave the size out of dynamic=."
            )
        return graph

    def attempt(self, sizes: Sizes) -> CapturedGraph | None:
        """Capture at these sizes; None if the function refuses them, or branches otherwise."""
        try:
            return self(sizes)
        except Exception:  # an error of the model, of any type
            return None


def _asked(decisions: Decisions, guard: SizeGuard) -> str:
    """Return a comparison with the numbers of its capture, and its answer."""
    numbers = {name: ref.aval.shape[axis] for name, (ref, axis) in decisions.leaves.items()}

    def shown(size: Size) -> str:
        return str(at(size, numbers))

    return f"{question_text(guard.question, shown(guard.left), shown(guard.right))} is {guard.answer}"


def add_guards(graph: CapturedGraph, samples: Sequence[Sizes]) -> list[Sizes]:
    """State the decisions of the captures at ``samples`` as ``graph.size_guards``.

    Return sizes at which quotients differ that were the same in all captures: captures there may show that
    they need no guard. OtherBranchError if the example's sizes would decide otherwise.
    """
    if not graph.decisions.leaves:
        return []
    comparisons, quotients = graph.decisions.resolved(graph, samples)
    graph.size_guards = distinct([*comparisons, *quotients])
    graph.decisions = Decisions()
    drop_unread(graph)
    present = set(graph.nodes)
    graph.symbolic = {node: sizes for node, sizes in graph.symbolic.items() if node in present}
    example = {name: symbol.example for name, symbol in graph.symbols.items()}
    for guard in graph.size_guards:
        if not guard.holds(example):
            raise OtherBranchError(
                f"Python branches by sizes at {guard.where or 'an unknown place'}: {guard.condition} is "
                f"{not guard.answer} for the example ({_text(example)}), and no three sizes that were tried "
                "decide like that. Pass an example well inside of the sizes that take its branch, compute "
                "without the branch, or leave the size out of dynamic=."
            )
    further = [
        probe for probe in probes(samples, graph.symbols) if all(guard.holds(probe) for guard in comparisons)
    ]
    found = (next((p for p in further if not guard.holds(p)), None) for guard in quotients)
    return [sizes for sizes in found if sizes is not None]


def _text(sizes: Sizes) -> str:
    return ", ".join(f"{name} = {size}" for name, size in sizes.items())
