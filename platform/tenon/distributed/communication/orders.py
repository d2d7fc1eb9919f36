"""``Orders``: find ranks that have the same tensors in different orders.

Ranks may each loop over items of their own: ``for i in range(rank, count, size)``. Different items in one
call are therefore legal, until they close a cycle: one rank had ``a`` where another had ``b``, and then ``b``
where the other had ``a``. Items of their own never do, as the ranks' shares have no item in common.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from tenon.distributed.communication.origin import Origin

WINDOW = 1024
"""Calls after which a difference is forgotten."""
MOST = 4096
"""Differences after which those that are older than ``WINDOW`` are dropped."""
#: The rank that is compared with the first one, what the references are in (variables, or a container), and
#: the loops around the call on one of them.
Key: TypeAlias = tuple[int, str, str]


class Orders:
    """The differences of the latest calls of a communicator; the same on all of its ranks."""

    def __init__(self) -> None:
        self._edges: dict[Key, dict[str, dict[str, int]]] = {}
        self._count, self._most = 0, MOST

    def find(self, origins: Sequence[Origin | None], number: int) -> int | None:
        """Record call ``number``, an origin of each rank; return the first call of a cycle that it closes."""
        found: list[int] = []
        known = [(rank, origin) for rank, origin in enumerate(origins) if origin is not None]
        for rank, other in known[1:]:
            first = known[0][1]
            for label, one, another in _differences(first, other):
                # Of two passes over a loop, only what is in the same pass on either rank is compared.
                for side, within in (("first", first.within), ("other", other.within)):
                    key = rank, label, f"{side} {within}"
                    found += self._close(key, one, another, number)
        return min(found, default=None)

    def _close(self, key: Key, one: str, another: str, number: int) -> Iterator[int]:
        """Add that a rank had ``another`` where the first had ``one``; yield where a cycle begins."""
        if self._count >= self._most:
            self._forget(number - WINDOW)
        edges = self._edges.setdefault(key, {})
        since = _path(edges, another, one, number - WINDOW)
        if since is not None:
            yield since
        if another not in edges.setdefault(one, {}):
            self._count += 1
        edges[one][another] = number

    def _forget(self, before: int) -> None:
        """Drop the differences of calls up to ``before``."""
        kept: dict[Key, dict[str, dict[str, int]]] = {}
        for key, edges in self._edges.items():
            recent = {
                one: {other: number for other, number in others.items() if number > before}
                for one, others in edges.items()
            }
            if any(recent.values()):
                kept[key] = {one: others for one, others in recent.items() if others}
        self._edges = kept
        self._count = sum(len(others) for edges in kept.values() for others in edges.values())
        self._most = 2 * self._count + MOST


def _differences(a: Origin, b: Origin) -> Iterator[tuple[str, str, str]]:
    """What refers to the tensors of two ranks, where it differs: a label and both references."""
    if a.parameter or b.parameter or not (a.places and b.places):
        return
    if a.loops and b.loops:
        names_a, names_b = (
            {f"{name}{_owner(each, name)}" for name in (*each.aliases, *filter(None, [each.expression]))}
            for each in (a, b)
        )
        if a.indices.keys().isdisjoint(b.indices.keys()):  # of two containers
            names_a.update(_items(a))
            names_b.update(_items(b))
        for one, another in itertools.product(sorted(names_a - names_b), sorted(names_b - names_a)):
            yield "variables", one, another
    elif not (a.strict and b.strict):
        return
    for label in sorted(a.indices.keys() & b.indices.keys()):
        if a.indices[label] != b.indices[label]:
            at_a, at_b = _owner(a, label), _owner(b, label)
            yield label, f"{a.indices[label]!r}{at_a}", f"{b.indices[label]!r}{at_b}"


def _items(origin: Origin) -> Iterator[str]:
    return (f"{label}[{index!r}]{_owner(origin, label)}" for label, index in origin.indices.items())


def _owner(origin: Origin, name: str) -> str:
    """The function of the variable that ``name`` begins with: others may have variables of the same name."""
    variable = name.partition(".")[0]
    return f" in {origin.owners.get(variable) or [place.function for place in origin.places]}"


def _path(edges: dict[str, dict[str, int]], start: str, end: str, after: int) -> int | None:
    """The earliest call on a path from ``start`` to ``end``, of calls later than ``after``; else None."""
    pending, seen = [(start, after + WINDOW)], {start}
    while pending:
        node, earliest = pending.pop()
        for following, number in edges.get(node, {}).items():
            if number > after and following == end:
                return min(earliest, number)
            if number > after and following not in seen:
                seen.add(following)
                pending.append((following, min(earliest, number)))
    return None
