"""``Target``: writes a captured graph for another machine, and runs the written files to verify them.

Plugins provide targets by the hook ``tenon_targets``. A target declares the ops that it supports; it receives
graphs of those ops only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tenon.errors import LoweringError
from tenon.export.axes import axes_of, lone_symbols
from tenon.export.captured import CapturedGraph
from tenon.export.lowering import lower
from tenon.export.lowering_rules import Rule
from tenon.graph.graph import Node

if TYPE_CHECKING:
    from tenon.export.vectors import Vectors


class Target:
    """Base class of targets, constructed without arguments.

    A subclass defines ``name``, ``ops``, ``write`` and ``run``; ``check`` rejects graphs for other reasons
    than a missing op, and ``unavailable`` returns why nothing can be run on this machine.
    """

    #: The name by which ``tenon export --to`` finds it, and of its folder in a bundle.
    name: ClassVar[str]
    #: The names of the ops that it supports.
    ops: ClassVar[Collection[str]] = frozenset()
    #: Rules that compute unsupported ops by others.
    rules: ClassVar[Mapping[str, Rule]] = {}

    #: Whether it writes graphs with sizes that may change (``CapturedGraph.symbols``).
    dynamic: ClassVar[bool] = False

    #: Whether the written program checks ``graph.guards``. Otherwise graphs in which Python branched on data,
    #: or on the number of the step, are rejected; branches on options (a momentum of 0) are not checked.
    guards: ClassVar[bool] = False

    #: Whether the written program checks ``graph.size_guards``, the branches on sizes that may change.
    size_guards: ClassVar[bool] = False

    def lowered(self, graph: CapturedGraph) -> CapturedGraph:
        """Return ``graph`` in the ops of this target; LoweringError lists all that are missing."""
        self.accept(graph)
        result = lower(graph, self.ops, self.rules)
        self.check(result)
        return result

    def accept(self, graph: CapturedGraph) -> None:
        """Raise LoweringError for dynamic sizes and guards that this target does not support.

        Bundles call it before ``lowered``, which a target may override.
        """
        if graph.changed:
            raise LoweringError(
                f"it returns results only, and the function changes its argument {graph.changed[0]!r} in "
                "place. Change a copy of it."
            )
        if not self.guards:
            refuse_decisions(graph)
        if graph.size_guards and not self.size_guards:
            guard = graph.size_guards[0]
            raise LoweringError(
                f"it cannot check that Python decides as it did at {guard.where or 'an unknown place'}: "
                f"{guard.text()}. Write the graph at given sizes, graph.at(...), or compute without a branch."
            )
        for name in lone_symbols(axes_of(graph)):
            raise LoweringError(
                f"it reads sizes of arguments, and none of them is {name!r} itself. Pass an argument of that "
                f"size, or write the graph at a given one: graph.at({name}={graph.symbols[name].example})."
            )
        if graph.symbols and not self.dynamic:
            sizes = ", ".join(f"{name}={each.example}" for name, each in graph.symbols.items())
            raise LoweringError(
                f"it has fixed sizes, and the graph has {', '.join(graph.symbols)}. Write it at given ones: "
                f"graph.at({sizes}), or without --any-batch-size."
            )

    def check(self, graph: CapturedGraph) -> None:
        """Raise LoweringError if the target cannot write ``graph``, which has been lowered to its ops."""

    def write(self, graph: CapturedGraph, vectors: Vectors | None, folder: Path) -> None:
        """Write ``graph``, which has been lowered to the ops of this target, into the empty ``folder``.

        ``vectors`` has inputs and the outputs that the model computes for them, for tests in the folder.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no write(graph, vectors, folder).")

    def run(self, folder: Path, runs: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
        """Run the program that ``write`` put into ``folder`` and return the outputs of each run.

        The runs, each a list of arrays for the arguments, follow one another: a training step begins with the
        state after the previous run.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no run(folder, runs).")

    def unavailable(self) -> str | None:
        """Return why nothing can be run on this machine ("no C compiler: gcc"), or None."""
        return None


def refuse_decisions(graph: CapturedGraph) -> None:
    """Raise LoweringError if Python branched on a tensor, or on a number that changes from run to run."""
    counting = {scalar.name for scalar in graph.signature.scalars if scalar.increment}
    for guard in graph.guards:
        if not guard.value.scalar or counting & scalar_names(guard.value.node):
            raise LoweringError(
                f"it cannot check that Python decides as it did at {guard.where or 'an unknown place'}: "
                f"{guard.text(graph.names())}. Compute with where(), or capture without guards=True."
            )


def scalar_names(node: Node) -> set[str]:
    """Return the names of the scalar inputs that ``node``, a scalar, is computed from."""
    if node.function == "input":
        return {node.label}
    return set().union(*(scalar_names(ref.node) for ref in node.refs))
