"""The part of a recorder for ``leaf.grad``: gradients before the recorded call, and those that it sets."""

from __future__ import annotations

from tenon.graph.guards import Guard, Names
from tenon.graph.values import Values
from tenon.tensors.tensor import Tensor


class LeafGradients:
    """Records which gradients a function reads, accumulates into and replaces."""

    guards: list[Guard]
    values: Values

    def __init__(self) -> None:
        #: By id, leaves whose gradient the function read before it set one, and that gradient or None.
        self.initial_gradients: dict[int, tuple[Tensor, Tensor | None]] = {}
        #: By id, leaves whose gradient the function set, to a tensor or to None.
        self.assigned_leaves: dict[int, Tensor] = {}

    def _listens(self) -> bool:
        raise NotImplementedError

    def gradient_read(self, leaf: Tensor) -> None:
        """Callback: ``leaf.grad`` is read."""
        key = id(leaf)
        if key not in self.assigned_leaves and key not in self.initial_gradients and self._listens():
            self.initial_gradients[key] = (leaf, leaf._grad)

    def gradient_set(self, leaf: Tensor) -> None:
        """Callback: ``leaf.grad`` is about to become another tensor, or None."""
        if self._listens():
            self.assigned_leaves[id(leaf)] = leaf

    def created_inside(self, leaf: Tensor) -> bool:
        """Whether the recorded function created ``leaf``."""
        entry = self.values.find(leaf.raw)
        if entry is None:
            return False
        return entry.storage.node is None or entry.storage.node.kind == "constant"

    def initial_gradients_guard(self, arguments: set[int]) -> Guard:
        """Return the guard that leaves have a gradient, or none, as before the recorded call.

        Arguments, given by id, are left out.
        """
        pairs = [
            pair
            for key, pair in self.initial_gradients.items()
            if key not in arguments and not self.created_inside(pair[0])
        ]
        without = [leaf for leaf, grad in pairs if grad is None]
        having = [leaf for leaf, grad in pairs if grad is not None]

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
