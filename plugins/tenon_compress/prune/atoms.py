"""Atoms: what can be removed only as a whole, such as one channel in every tensor that has it.

Every position of every axis of a parameter begins as an atom of its own. Ops unite atoms: adding two
tensors unites their channels one by one, a convolution its inputs with those of its weight. Atom 0 stays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

#: The atom of everything that cannot be removed.
FIXED = 0


class Atoms:
    """Disjoint sets of integers, with a reason why a set has to stay."""

    def __init__(self) -> None:
        self.parents = [FIXED]
        self.reasons: dict[int, str] = {}

    def fresh(self, count: int) -> Any:
        """``count`` new atoms."""
        start = len(self.parents)
        self.parents.extend(range(start, start + count))
        return np.arange(start, start + count)

    def find(self, atom: int) -> int:
        """The atom that stands for the set of ``atom``."""
        parents = self.parents
        while parents[atom] != atom:
            parents[atom] = atom = parents[parents[atom]]
        return atom

    def roots(self, atoms: Any) -> Any:
        """``find`` of every element."""
        found, inverse = np.unique(atoms, return_inverse=True)
        return np.array([self.find(int(a)) for a in found], dtype=np.int64)[inverse].reshape(atoms.shape)

    def unite(self, one: Any, other: Any) -> None:
        """Make one set of each pair of two arrays that broadcast."""
        pairs = np.stack([a.reshape(-1) for a in np.broadcast_arrays(one, other)], axis=1)
        for a, b in np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0).tolist():
            low, high = sorted((self.find(a), self.find(b)))
            if low != high:
                self.parents[high] = low
                if high in self.reasons:
                    self.reasons.setdefault(low, self.reasons[high])

    def keep(self, atoms: Any, reason: str) -> None:
        """All of ``atoms`` have to stay, for ``reason``."""
        for atom in np.unique(atoms).tolist():
            root = self.find(atom)
            if root != FIXED:
                self.reasons.setdefault(root, reason)

    def reason(self, atom: int) -> str:
        """Why ``atom`` stays; "" if nothing says so."""
        root = self.find(atom)
        return next((text for held, text in self.reasons.items() if self.find(held) == root), "")
