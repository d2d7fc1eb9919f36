"""The part of a recorder that follows ``leaf.grad``: what a function found there, and what it left."""

from __future__ import annotations

from typing import Any

from tenon.graph.guards import Guard, Names
from tenon.graph.values import Values


class LeafGradients:
    """Gradients that a recording finds, adds to and replaces."""

    guards: list[Guard]
    values: Values

    def __init__(self) -> None:
        #: Leaves whose gradient mattered before the function set it: with the tensor found there, or None.
        self.found: dict[int, tuple[Any, Any]] = {}
        #: Leaves whose gradient the function set, to a tensor or to None.
        self.given: dict[int, Any] = {}

    def _listens(self) -> bool:
        raise NotImplementedError

    def gradient_read(self, leaf: Any) -> None:
        """Somebody looks at ``leaf.grad``."""
        key = id(leaf)
        if key not in self.given and key not in self.found and self._listens():
            self.found[key] = (leaf, leaf._grad)

    def gradient_set(self, leaf: Any) -> None:
        """``leaf.grad`` is about to become another tensor, or None."""
        if self._listens():
            self.given[id(leaf)] = leaf

    def made_here(self, leaf: Any) -> bool:
        """Whether the function itself made ``leaf``."""
        entry = self.values.find(leaf.raw)
        if entry is None:
            return False
        return entry.storage.node is None or entry.storage.node.kind == "constant"

    def gradients_found(self, arguments: set[int]) -> Guard:
        """Whether the leaves (apart from arguments, by id) have a gradient where they had one."""
        found = [p for key, p in self.found.items() if key not in arguments and not self.made_here(p[0])]
        without = [leaf for leaf, grad in found if grad is None]
        having = [leaf for leaf, grad in found if grad is not None]

        def same() -> bool:
            for leaf in without:
                if leaf._grad is not None:
                    return False
            return all(not (leaf._grad is None or leaf._grad._track) for leaf in having)

        def source(names: Names) -> str:
            checks = [f"{names(leaf)}._grad is None" for leaf in without]
            checks += [f"(g := {names(leaf)}._grad) is not None and not g._track" for leaf in having]
            return " and ".join(checks) or "True"

        return Guard("which parameters have a gradient at the beginning of the call", same, source)
