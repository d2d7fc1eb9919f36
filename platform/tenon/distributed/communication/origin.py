"""``Origin``: where in a program a collective was called, and what its source calls the tensor.

Ranks whose calls differ only in their origins exchange them; ``contradict`` decides, with the same result on
every rank, whether all of them may be one call; what is chosen at run time, ``orders.py`` follows over calls.
The branches of an ``if`` may make one call in two places, but never two statements that follow each other.
``source.py`` reads origins from frames.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

#: A branch that encloses a call: its identifier, which of its arms, the arms that leave the block, and the
#: identifiers in its test. Arm -1 is what follows a branch, of which the listed arms leave the block.
Arm: TypeAlias = tuple[str, int, Sequence[int], Sequence[str]]
Arms: TypeAlias = Sequence[Arm]

TEST = "if "
"""What the source of a test begins with, among the identifiers in it."""
REST = -1
"""The arm of statements after a branch some of whose arms leave the block."""


@dataclass
class Place:
    """The call that a frame of the program is in, and the branches around it."""

    function: str
    line: int
    column: int
    call: str
    """The source of the call."""
    arms: Arms = ()
    others: Sequence[tuple[str, Arms]] = ()
    """Other calls in the same function, and the branches around them; ``digest_of`` those of other names."""
    chosen: bool = False
    """The called function is the variable of a loop."""

    @property
    def position(self) -> tuple[str, int, int]:
        """What identifies the place."""
        return self.function, self.line, self.column


@dataclass
class Origin:
    """What ranks compare of a call, besides its kind, shape and dtype, if it has no explicit name."""

    parameter: str | None = None
    """``the parameter 0.weight`` or ``the gradient of 0.weight``."""
    expression: str | None = None
    """A variable, an attribute or an item in backticks, if that is what the source passes."""
    strict: bool = True
    """Whether different expressions are a contradiction: not where ranks receive into their own variables."""
    aliases: Sequence[str] = ()
    """Other variables that are the tensor, if the source chooses it at run time."""
    indices: Mapping[str, int | str] = field(default_factory=dict)
    """Containers, by their variables, to the index of the tensor; variables of loops to their values."""
    owners: Mapping[str, str] = field(default_factory=dict)
    """The function, or the module, of each variable that the aliases and indices begin with."""
    loops: bool = False
    """The source chooses the tensor by the variable of a loop."""
    places: Sequence[Place] = ()
    """The calls of the program's frames, the innermost first."""
    within: int = 0
    """A 63-bit hash of the values of the loops around the call, except of those that choose the tensor."""

    def pack(self) -> dict[str, Any]:  # values of the fields, as JSON
        """This origin as JSON."""
        return {**vars(self), "places": [vars(place) for place in self.places]}

    @classmethod
    def unpack(cls, packed: dict[str, Any]) -> Origin:  # values of the fields, as JSON
        """The origin that ``pack`` has packed."""
        return cls(**{**packed, "places": [Place(**place) for place in packed["places"]]})


def contradict(origins: Sequence[Origin | None]) -> bool:
    """Whether calls of these origins, one of each rank, cannot be one call. None is an unknown origin."""
    known = [origin for origin in origins if origin is not None]
    distinct = list({repr(origin): origin for origin in known}.values())
    if _names_contradict(
        {origin.parameter or origin.expression or "" for origin in distinct if origin.strict}
    ):
        return True
    if _names_contradict({origin.parameter for origin in distinct if origin.parameter}):
        return True
    return any(_pair_contradicts(a, b) for a, b in itertools.combinations(distinct, 2))


def _names_contradict(names: set[str]) -> bool:
    """Whether these names cannot refer to one tensor. Paths may be relative to different modules."""
    names = {name for name in names if name}
    parameters = sorted((name for name in names if not name.startswith("`")), key=len)
    if not parameters:
        return len(names) > 1
    *prefixes, paths = zip(*(name.rpartition(" ") for name in parameters), strict=True)
    return len(set(prefixes[0])) > 1 or not all(
        longer == shorter or longer.endswith(f".{shorter}") for shorter, longer in itertools.pairwise(paths)
    )


def _pair_contradicts(a: Origin, b: Origin) -> bool:
    """Whether the places or the aliases of two origins contradict each other."""
    if _places_contradict(a.places, b.places):
        return True
    if a.parameter or b.parameter or a.loops or b.loops:
        return False
    only_a, only_b = set(a.aliases) - set(b.aliases), set(b.aliases) - set(a.aliases)
    # One expression that chooses between both, and calls elsewhere that choose between the same.
    return bool(only_a and only_b and a.places) and _mentioned_elsewhere(a.places[0], only_a | only_b)


def _mentioned_elsewhere(here: Place, names: set[str]) -> bool:
    """Whether another call than the one at ``here`` mentions all of ``names``."""
    return any(names <= _words(text) for text, arms in here.others if not may_alternate(arms, here.arms))


def _words(text: str) -> set[str]:
    return set("".join(letter if letter.isalnum() or letter == "_" else " " for letter in text).split())


def _places_contradict(a: Sequence[Place], b: Sequence[Place]) -> bool:
    """Whether a program cannot be at ``a`` on one rank and at ``b`` on another in one call."""
    if not a or not b:
        return False
    pairs, below = _aligned(a, b)
    if pairs and pairs[-1][0].position != pairs[-1][1].position:
        one, other = pairs[-1]
        if not may_alternate(one.arms, other.arms) or _elsewhere(one, other):
            return True
    elif below is not None and (pairs[-1][0].chosen or _elsewhere(*below)):
        return True  # Another function was called at the same place.
    return a[0].position != b[0].position and _elsewhere(a[0], b[0])


def _aligned(
    a: Sequence[Place], b: Sequence[Place]
) -> tuple[list[tuple[Place, Place]], tuple[Place, Place] | None]:
    """Pairs of places in the same functions, the outermost first, up to the first two that differ.

    Also the pair below them, in different functions. Frames may be cut off at either end.
    """
    outer_a, outer_b = list(reversed(a)), list(reversed(b))
    for skip in range(max(len(outer_a), len(outer_b))):
        for one, other in ((outer_a[skip:], outer_b), (outer_a, outer_b[skip:])):
            if one and other and one[0].function == other[0].function:
                pairs: list[tuple[Place, Place]] = []
                for pair in zip(one, other, strict=False):
                    if pair[0].function != pair[1].function:
                        return pairs, pair
                    pairs.append(pair)
                    if pair[0].position != pair[1].position:
                        break
                return pairs, None
    return [], None


def _elsewhere(one: Place, other: Place) -> bool:
    """Whether the rank at one of these places makes the call of the other elsewhere: they are swapped."""
    if one.call == other.call:
        return False
    return any(
        text in (there.call, digest_of(there.call)) and not may_alternate(arms, here.arms)
        for here, there in ((one, other), (other, one))
        for text, arms in here.others
    )


def digest_of(call: str) -> str:
    """A short text for a call of another function, which is compared but not shown."""
    return "#" + hashlib.blake2b(call.encode(), digest_size=4).hexdigest()


def may_alternate(a: Arms, b: Arms) -> bool:
    """Whether a program may be in ``a`` on one rank while it is in ``b`` on another, in place of it.

    In two arms of one branch, or in two branches that test the same.
    """
    branches = {arm[0]: arm for arm in b}
    for name, number, exits, _ in a:
        other = branches.get(name)
        if other is None or other[1] == number:
            continue
        if REST not in (number, other[1]):
            return True
        rest, arm = (exits, other[1]) if number == REST else (other[2], number)
        if arm in rest:
            return True
    names_a, names_b = {arm[0] for arm in a}, {arm[0] for arm in b}
    tests_a = [arm for arm in a if arm[0] not in names_b and arm[1] != REST]
    tests_b = [arm for arm in b if arm[0] not in names_a and arm[1] != REST]
    return any(
        bool({*one[3]} & {*another[3]}) and not _same_arm(one, another)
        for one, another in itertools.product(tests_a, tests_b)
    )


def _same_arm(a: Arm, b: Arm) -> bool:
    """Whether two branches have the same test, so that one rank executes both of these arms."""
    return a[1] == b[1] and {*a[3]} == {*b[3]} and any(word.startswith(TEST) for word in a[3])
