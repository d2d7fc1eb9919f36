"""``Call``, the description of a collective that ranks compare, and ``Work``, the handle it returns."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, Self, TypeAlias, TypeVar, TypeVarTuple

import numpy as np

from tenon.distributed.communication.orders import Orders
from tenon.distributed.communication.origin import Origin, contradict
from tenon.errors import CollectiveMismatchError

if TYPE_CHECKING:
    from tenon.distributed.communication.communicator import Communicator
    from tenon.distributed.communication.steps import Followed

Args = TypeVarTuple("Args")
Result = TypeVar("Result")


class Implied(str):
    """An inferred name: that of a parameter, or in backticks the expression in the caller's source.

    The text after a line break distinguishes calls, but is not shown. ``origin`` reads the ``Origin``.
    ``followed`` is what the tensor comes from in the frames around (``steps.py``); ``passes`` returns
    ``Origin.within`` alone.
    """

    __slots__ = ("_origin", "_recorded", "followed", "passes")

    _origin: Callable[[], Origin] | None
    _recorded: Recorded | None
    followed: Followed | None
    passes: Callable[[], int] | None

    def __new__(cls, text: str, origin: Callable[[], Origin] | None = None) -> Self:
        """The name ``text``."""
        self = super().__new__(cls, text)
        self._origin, self._recorded, self.followed, self.passes = origin, None, None, None
        return self

    def recorded(self) -> Recorded:
        """This name, for a call that a recorder may write into a program."""
        if self._recorded is None:
            self._recorded = Recorded(self, self._origin)
            self._recorded.followed = self.followed
        return self._recorded

    @property
    def shown(self) -> str:
        """The name as error messages show it."""
        return self.partition("\n")[0]

    @property
    def hidden(self) -> str:
        """The text that distinguishes the name from others that look the same."""
        return self.partition("\n")[2]

    def with_prefix(self, text: str) -> Implied:
        """This name with ``text`` before it."""
        return type(self)(text + self, lambda: self.origin)

    @property
    def origin(self) -> Origin:
        """Where the call was made; for a name without an origin, the name as its expression or parameter."""
        if self._origin is not None:
            return self._origin()
        text, _, alias = self.shown.partition(" (")
        if not text.startswith("`"):
            return Origin(parameter=self.shown)
        return Origin(expression=text, aliases=[alias.rstrip(")")] if alias else (), loops=True)


class Recorded(Implied):
    """A name inferred under an interceptor: it may be a constant of a program that runs later, elsewhere."""

    __slots__ = ()


@dataclass(frozen=True)
class Call:
    """The description of a collective call. Calls match if equal; calls that differ raise on all ranks."""

    kind: str
    detail: str
    shape: tuple[int, ...]
    dtype: str
    name: str | None

    @functools.cached_property
    def digest(self) -> int:
        """A 63-bit hash of the call, equal on every rank and host."""
        fields = (self.kind, self.detail, self.shape, self.dtype, self.name)
        return int.from_bytes(hashlib.blake2b(repr(fields).encode(), digest_size=8).digest(), "big") >> 1

    @property
    def within(self) -> int:
        """``Origin.within`` of the call, for ``Agreements``; 0 without one."""
        if not isinstance(self.name, Implied):
            return 0
        return self.name.origin.within if self.name.passes is None else self.name.passes()

    @property
    def label(self) -> str | None:
        """The name, as messages and profiles show it."""
        return self.name.shown if isinstance(self.name, Implied) else self.name

    def describe(self, step: int | None) -> str:
        """One line for error messages.

        >>> Call("all_reduce", "sum", (3, 4), "float32", "fc.weight").describe(7)
        "all_reduce(sum) of float32[3, 4] named 'fc.weight' at step 7"
        """
        parts = [self.kind, f"({self.detail})" if self.detail else ""]
        if self.dtype and self.kind != "all_gather_bytes":
            parts.append(f" of {self.dtype}{list(self.shape)}")
        if isinstance(self.name, Implied):
            parts.append(
                f" {self.name.shown}" if self.name.shown.startswith("at ") else f", {self.name.shown}"
            )
        elif self.name is not None:
            parts.append(f" named {self.name!r}")
        if step is not None:
            parts.append(f" at step {step}")
        return "".join(parts)

    def payload(self, step: int | None) -> bytes:
        """The serialized call, which ranks exchange if their digests differ; see ``settle``."""
        origin = self.name.origin.pack() if isinstance(self.name, Implied) else None
        explicit = None if origin is not None else self.name
        stated = [self.kind, self.detail, list(self.shape), self.dtype, explicit, step]
        return json.dumps([stated, origin, self.describe(step)]).encode()


@functools.lru_cache(maxsize=4096)
def cached_call(kind: str, detail: str, shape: tuple[int, ...], dtype: str, name: str | None) -> Call:
    """A cached ``Call`` with these fields, whose digest is computed only once."""
    return Call(kind, detail, shape, dtype, name)


MOST_AGREEMENTS = 4096
"""Size of the cache of calls that differ and are accepted."""
FINISH = Call("the end of its program", "", (), "", None)
"""The call of a rank whose program has ended."""


def mismatch(
    descriptions: Sequence[str], number: int, ranks: Sequence[int] | None = None, since: int | None = None
) -> CollectiveMismatchError:
    """The error that every rank raises, naming all sides; ``descriptions`` in the order of ``ranks``.

    ``since`` is the call from which on the ranks have had the same tensors in different orders.
    """
    sides: dict[str, list[int]] = {}
    for rank, text in zip(ranks or range(len(descriptions)), descriptions, strict=True):
        sides.setdefault(text, []).append(rank)
    order = "" if since is None else f" Since call {since} they had the same tensors in different orders."
    return CollectiveMismatchError(
        f"ranks disagree in collective call {number}: {_list_sides(sides)}.{order} Every rank must make the "
        "same calls in the same order; look for a branch, a skipped batch or another configuration."
    )


def settle(
    payloads: Sequence[bytes], number: int, ranks: Sequence[int] | None = None, orders: Orders | None = None
) -> None:
    """Raise, naming all sides, unless the ``Call.payload`` of all ranks differ in implied names only.

    Implied names may be missing, or one rank's a parameter and another's an expression: a rank that lacks a
    gradient passes zeros. Two different parameters, or two different expressions, are a mismatch, and so are
    two places of the program that cannot be one call (``origin.py``), and tensors that the ranks have had in
    different orders by ``orders``, which is the communicator's. ``ranks`` are the global ranks.
    """
    calls = [json.loads(payload) for payload in payloads]
    stated = [fields for fields, _, _ in calls]
    origins = [None if packed is None else Origin.unpack(packed) for _, packed, _ in calls]
    if any(fields != stated[0] for fields in stated) or contradict(origins):
        raise mismatch([text for _, _, text in calls], number, ranks)
    since = None if orders is None else orders.find(origins, number)
    if since is not None:
        raise mismatch([text for _, _, text in calls], number, ranks, since)


class Agreements:
    """Calls of all ranks that ``settle`` has accepted, by their words, so that they need no text again.

    The same on all ranks, as each of them has seen the same payloads.
    """

    def __init__(self) -> None:
        self._origins: dict[int, Origin | None] = {}
        self._accepted: set[tuple[int, ...]] = set()

    def learn(self, words: Sequence[int], payloads: Sequence[bytes]) -> None:
        """Note that the ranks may make the calls of ``payloads``, whose words differ, as one."""
        if len(self._accepted) >= MOST_AGREEMENTS:
            self._accepted.clear()
            self._origins.clear()
        self._accepted.add(tuple(words))
        for word, payload in zip(words, payloads, strict=True):
            packed = json.loads(payload)[1]
            self._origins[word] = None if packed is None else Origin.unpack(packed)

    def knows(self, words: Sequence[int]) -> bool:
        """Whether the ranks made calls of these words before."""
        return tuple(words) in self._accepted

    def are_in_order(self, words: Sequence[int], within: Sequence[int], number: int, orders: Orders) -> bool:
        """Whether call ``number`` of known ``words`` closes no cycle of ``orders``.

        ``within`` states for each rank which passes of the loops around the call it is in.
        """
        origins = [
            None if origin is None else replace(origin, within=each)
            for origin, each in zip(map(self._origins.__getitem__, words), within, strict=True)
        ]
        return orders.find(origins, number) is None


def check_message(expected: str, sent: str, source: int) -> None:
    """Raise ``CollectiveMismatchError`` if rank ``source`` sent another shape or dtype than expected."""
    if sent != expected:
        raise CollectiveMismatchError(
            f"rank {source} sent {sent}, but this rank expects {expected}. Send and receive the same shape "
            "and dtype, in the same order for each tag."
        )


def _list_sides(sides: Mapping[str, Sequence[int]]) -> str:
    return "; ".join(f"{format_ranks(ranks)} at {text}" for text, ranks in sides.items())


def format_ranks(ranks: Sequence[int]) -> str:
    """``"rank 3"`` or ``"ranks 0, 2"``, shortened after eight.

    >>> format_ranks([0, 2])
    'ranks 0, 2'
    """
    listed = ", ".join(str(rank) for rank in ranks[:8])
    more = f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {listed}{more}"


class Work:
    """The handle of a collective; this one has completed. Asynchronous engines return a subclass."""

    __slots__ = ("_result",)

    def __init__(self, result: np.ndarray) -> None:
        self._result = result

    def wait(self, timeout: object = None) -> np.ndarray:
        """Block until the collective has completed and return its result; raises if it failed."""
        return self._result

    def is_completed(self) -> bool:
        """Whether ``wait`` would return at once."""
        return True


class ReductionOptions(Protocol):
    """torch's ``AllreduceOptions``: the operation of a reduction."""

    reduceOp: str


#: Called with each collective that the thread makes, before the ranks compare it.
Observer: TypeAlias = "Callable[[Call], None]"
OBSERVERS: ContextVar[tuple[Observer, ...]] = ContextVar("collective observers", default=())


class AroundCall(Protocol):
    """A profiler's wrapper of every collective."""

    def __call__(
        self,
        communicator: Communicator,
        call: Call,
        perform: Callable[[*Args], Result],
        args: tuple[*Args],
        /,
    ) -> Result:
        """Compare ``call`` between the ranks, then return ``perform(*args)``."""
