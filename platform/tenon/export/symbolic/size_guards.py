"""``SizeGuard``: a comparison of sizes by which Python branched; ``Decisions`` collects them in a capture.

During the capture of one call, each size of a value is a symbol of its own, a *leaf*. When several captures
have given the expressions of all sizes, ``Decisions.resolved`` replaces the leaves by these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tenon.errors import CaptureError, ShapeError
from tenon.export import places
from tenon.export.sizes import Expression, Size, Sizes, at
from tenon.export.symbolic.arithmetic import combine, difference_range, substituted
from tenon.graph.graph import Node, Ref
from tenon.graph.scalars import COMPARISONS, QUESTIONS, question_text

if TYPE_CHECKING:
    from tenon.export.captured import CapturedGraph


@dataclass(frozen=True, slots=True)
class SizeGuard:
    """A comparison of sizes, and its answer in the capture; the graph is valid while that is the same."""

    left: Size
    #: One of ``COMPARISONS``.
    question: str
    right: Size
    answer: bool
    #: ``file:line`` of the code that compared.
    where: str = ""

    @property
    def condition(self) -> str:
        """The comparison as a Python expression."""
        return question_text(self.question, str(self.left), str(self.right))

    @property
    def place(self) -> str:
        """``file:line`` without the folders, which differ from machine to machine."""
        return Path(self.where).name or "an unknown place"

    @property
    def symbols(self) -> set[str]:
        """The names of the sizes that it depends on."""
        return set().union(*(s.symbols for s in (self.left, self.right) if isinstance(s, Expression)))

    def text(self) -> str:
        """Return the guard as a line of the printed graph."""
        return f"guard {self.condition} is {self.answer}" + (f"  # {self.where}" if self.where else "")

    def holds(self, sizes: Sizes) -> bool:
        """Whether the comparison has the same answer at these sizes of the symbols."""
        return bool(QUESTIONS[self.question](at(self.left, sizes), at(self.right, sizes))) is self.answer

    def message(self, sizes: Sizes) -> str:
        """Return why the graph does not hold at ``sizes``."""
        values = ", ".join(f"{name} = {sizes[name]}" for name in sorted(self.symbols))
        return (
            f"Python decided by {self.condition} at {self.where or 'an unknown place'}, which was "
            f"{self.answer} when the function was captured and is {not self.answer} for {values}, so the "
            "graph does not hold. Capture with an example of such sizes too, or compute without the branch."
        )

    def always_holds(self) -> bool:
        """Whether the answer is the same for all sizes, as far as that is simple to see."""
        least, most = difference_range(self.left, self.right)
        outcomes = _OUTCOMES[self.question]
        possible = {
            outcomes[sign]
            for sign in (-1, 0, 1)
            if (least is None or sign >= 0 or least < 0)
            and (most is None or sign <= 0 or most > 0)
            and (sign != 0 or ((least is None or least <= 0) and (most is None or most >= 0)))
        }
        return possible == {self.answer}


#: Question -> its answer where left - right is negative, zero or positive.
_OUTCOMES: dict[str, dict[int, bool]] = {
    name: {sign: bool(QUESTIONS[name](sign, 0)) for sign in (-1, 0, 1)} for name in COMPARISONS
}


def check_guards(guards: Sequence[SizeGuard], sizes: Sizes) -> None:
    """Raise ShapeError, with the condition, its line and the sizes, for the first guard that fails."""
    for guard in guards:
        if not guard.holds(sizes):
            raise ShapeError(guard.message(sizes))


@dataclass(frozen=True, slots=True)
class Opaque:
    """A number computed from sizes that no expression of integers gives."""

    #: The names of the sizes.
    symbols: frozenset[str]


#: What a traced number is: a size, or a number that depends on sizes.
Traced: TypeAlias = "Size | Opaque"


@dataclass(frozen=True, slots=True)
class Refused:
    """A decision that no guard can state: it is an error if it depends on a size that may change."""

    symbols: frozenset[str]
    #: What was decided, and what to write instead.
    problem: str
    where: str


@dataclass
class Decisions:
    """What Python decided by sizes during one capture, in terms of the sizes of values."""

    #: Name -> the value and the axis whose size it is.
    leaves: dict[str, tuple[Ref, int]] = field(default_factory=dict)
    guards: dict[tuple[Size, str, Size], SizeGuard] = field(default_factory=dict)
    refused: list[Refused] = field(default_factory=list)
    #: Quotients and rests, their values and places: if one is the same in all captures, a guard says so.
    quotients: dict[Expression, tuple[int, str]] = field(default_factory=dict)
    #: Call -> the expressions of integers among its arguments and attrs that were computed from sizes.
    computed: dict[Node, dict[places.Path, Expression]] = field(default_factory=dict)

    def add(self, guard: SizeGuard) -> None:
        """Add a comparison, unless its answer is always the same."""
        if not guard.always_holds():
            self.guards.setdefault((guard.left, guard.question, guard.right), guard)

    def refs(self) -> Iterator[Ref]:
        """Yield the values whose sizes are compared."""
        for name in self._used() if self.leaves else ():
            yield self.leaves[name][0]

    def _used(self) -> set[str]:
        return set().union(
            *(guard.symbols for guard in self.guards.values()),
            *(each.symbols for each in self.refused),
            *(each.symbols for each in self.quotients),
            *(each.symbols for own in self.computed.values() for each in own.values()),
        )

    def moved(self, move: Callable[[Ref], Ref], nodes: Mapping[Node, Node] | None = None) -> Decisions:
        """Return the same decisions about other values, and other ``nodes`` in place of the present ones."""
        if not self.leaves:
            return self
        used = self._used()
        leaves = {name: (move(ref), axis) for name, (ref, axis) in self.leaves.items() if name in used}
        computed = self.computed
        if nodes is not None:
            computed = {nodes[node]: own for node, own in computed.items() if node in nodes}
        return Decisions(leaves, self.guards, self.refused, self.quotients, computed)

    def computed_in(
        self, node: Node, symbolic: Mapping[Node, Mapping[places.Path, Expression]]
    ) -> dict[places.Path, Size]:
        """Return what gives the integers of ``node`` that were computed from sizes, those of ``symbolic``."""
        result: dict[places.Path, Size] = {}
        for path, own in self.computed.get(node, {}).items():
            known = {name: _size_in(symbolic, *self.leaves[name]) for name in own.symbols}
            result[path] = substituted(own, known)
        return result

    def differ(self, other: Decisions) -> tuple[SizeGuard, SizeGuard] | None:
        """Return the first comparison with another answer in ``other``, a capture of the same function."""
        for own, its in zip(self.guards.values(), other.guards.values(), strict=False):
            if (own.question, own.where) != (its.question, its.where):
                return None
            if own.answer is not its.answer:
                return own, its
        return None

    def resolved(
        self, graph: CapturedGraph, samples: Sequence[Sizes]
    ) -> tuple[list[SizeGuard], list[SizeGuard]]:
        """Return the guards in terms of the symbols of ``graph``, without those that always hold.

        The first list is of comparisons; the second says that a quotient or rest, which was the same at all
        of the ``samples``, is that. CaptureError, with the line, for a decision that cannot be stated.
        """
        used = self._used()
        known = {n: _size(graph, ref, axis) for n, (ref, axis) in self.leaves.items() if n in used}
        for each in self.refused:
            free = sorted(set().union(*(_symbols(known[name]) for name in each.symbols)))
            if free:
                raise CaptureError(
                    f"{each.problem.format(sizes=' and '.join(free))}, at {each.where or 'an unknown place'}."
                )
        comparisons = [
            SizeGuard(substituted(g.left, known), g.question, substituted(g.right, known), g.answer, g.where)
            for g in self.guards.values()
        ]
        sizes = ((substituted(quotient, known), *rest) for quotient, rest in self.quotients.items())
        constant = [
            SizeGuard(size, "eq", value, True, where)
            for size, value, where in sizes
            if isinstance(size, Expression) and all(size.at(sample) == value for sample in samples)
        ]
        return distinct(comparisons), distinct(constant)


def distinct(guards: Sequence[SizeGuard]) -> list[SizeGuard]:
    """Return the first of equal guards, without those that always hold."""
    found: dict[tuple[Size, str, Size], SizeGuard] = {}
    for guard in guards:
        if not guard.always_holds():
            found.setdefault((guard.left, guard.question, guard.right), guard)
    return [*found.values()]


def _symbols(size: Size) -> set[str]:
    return size.symbols if isinstance(size, Expression) else set()


def _size(graph: CapturedGraph, ref: Ref, axis: int) -> Size:
    """Return a size of a value of ``graph``, as an expression of its symbols."""
    return _size_in(graph.symbolic, ref, axis)


def _size_in(symbolic: Mapping[Node, Mapping[places.Path, Expression]], ref: Ref, axis: int) -> Size:
    own = symbolic.get(ref.node, {})
    return own.get(("shape", ref.index, axis), ref.aval.shape[axis])


def computed(function: str, left: Traced, right: Traced) -> Traced:
    """Return a function of two numbers, one of which depends on sizes."""
    if isinstance(left, Opaque) or isinstance(right, Opaque):
        return Opaque(frozenset(symbols_of(left) | symbols_of(right)))
    if function in ("floordiv", "mod") and (not isinstance(right, int) or right < 1):
        return Opaque(frozenset(symbols_of(left) | symbols_of(right)))
    return combine(function, left, right)


def symbols_of(number: Traced) -> set[str]:
    """Return the names of the sizes that a traced number depends on."""
    return set() if isinstance(number, int) else set(number.symbols)
