"""``Holder``: where the tensor of a call was found; one look tells whether the next one is there, too."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from inspect import CO_OPTIMIZED
from types import CodeType, FrameType
from typing import NamedTuple

from tenon.distributed.communication import references, source
from tenon.distributed.communication.callers import Callers, ReadCallers
from tenon.distributed.communication.calls import Implied

NOWHERE = 1 << 30
"""The depth of a ``Holder`` that holds nothing."""


class Label(NamedTuple):
    """The value of a variable that distinguishes calls, ``depth`` frames above the call."""

    depth: int
    variable: str
    key: int | str


class Holder:
    """A variable or item that held the tensor of a call, the name, and what came next the last time.

    ``loop`` is the variable of a loop that is looked for in place of the tensor, or empty. The variable may
    be an attribute of another one. ``labels`` are what else the name states.
    """

    __slots__ = ("attribute", "depth", "key", "labels", "loop", "name", "next", "variable")

    def __init__(
        self,
        depth: int,
        variable: str,
        key: int | str | None,
        loop: str,
        name: Implied,
        labels: Sequence[Label] = (),
    ) -> None:
        self.depth, self.key, self.loop, self.name = depth, key, loop, name
        self.labels = [(each, of, value) for each, of, value in labels]  # quicker to unpack than ``Label``
        self.variable, _, self.attribute = variable.partition(".")
        self.next = self

    def holds(self, tensor: object, frame: FrameType, callers: object = None) -> bool:
        """Whether the variable, ``depth`` frames above ``frame``, holds ``tensor`` now, and labels are as
        they were. ``callers`` is what the second frame keeps (``callers.py``)."""
        if self.labels and not self._are_same(frame):
            return False
        where = above(frame, self.depth) if self.depth else frame
        values = where.f_locals
        value = values.get(self.variable)
        if value is None:
            value = where.f_globals.get(self.variable)
        return self._leads_to(values.get(self.loop) if self.loop else tensor, value)

    def _are_same(self, frame: FrameType) -> bool:
        """Whether all labels are as they were."""
        for depth, variable, expected in self.labels:
            found = (above(frame, depth) if depth else frame).f_locals.get(variable)
            if found is not expected and references.as_key(found) != expected:
                return False
        return True

    def _leads_to(self, subject: object, value: object) -> bool:
        """Whether ``subject`` is ``value`` of the variable, or its attribute or item."""
        if subject is None:
            return False
        if self.attribute:
            value = references.attribute_of(value, self.attribute)
        key = self.key
        if key is None:
            return value is subject
        kind = type(value)
        if kind is dict or kind is list or kind is tuple:
            try:
                return value[key] is subject  # type: ignore[index]
            except (LookupError, TypeError):
                return False
        return False


class HeldItem(Holder):
    """An item of a variable of the calling function, or of its attribute: the most common one, in the fewest
    steps."""

    __slots__ = ()

    def holds(self, tensor: object, frame: FrameType, callers: object = None) -> bool:
        """Whether the item is ``tensor`` now."""
        value = frame.f_locals.get(self.variable)
        if self.attribute:
            value = references.attribute_of(value, self.attribute)
        kind = type(value)
        if (kind is list or kind is dict or kind is tuple) and tensor is not None:
            try:
                return value[self.key] is tensor  # type: ignore[index]
            except (LookupError, TypeError):
                return False
        return False


class StandingHolder(Holder):
    """A variable of a caller of the second frame, which no other function assigns: it is read again only
    after the caller has gone on. ``place`` stands for it."""

    __slots__ = ("place",)

    place: object

    def holds(self, tensor: object, frame: FrameType, callers: object = None) -> bool:
        """Whether the variable holds ``tensor`` now, and labels are as they were."""
        if self.labels and not self._are_same(frame):
            return False
        if type(callers) is ReadCallers and callers.place is self.place:
            value, subject = callers.value, callers.subject
        else:
            values = above(frame, self.depth).f_locals
            value, subject = values.get(self.variable), values.get(self.loop)
            if isinstance(callers, Callers):
                read = callers.callers if type(callers) is ReadCallers else callers
                above(frame, 1).f_trace = ReadCallers(read, self.place, value, subject)
        return self._leads_to(subject if self.loop else tensor, value)


class Labels(Holder):
    """Labels alone, for a tensor that is in no variable."""

    __slots__ = ()

    def __init__(self, name: Implied, labels: Sequence[Label]) -> None:
        super().__init__(0, "", None, "", name, labels)

    def holds(self, tensor: object, frame: FrameType, callers: object = None) -> bool:
        """Whether the labels are as they were. ``tensor`` and ``callers`` have no effect."""
        return self._are_same(frame)


def holder_of(
    code: CodeType,
    depth: int,
    variable: str,
    key: int | str | None,
    loop: str,
    name: Implied,
    labels: Sequence[Label],
) -> Holder:
    """The holder that takes the fewest steps; the variables are those of ``code``."""
    owner = variable.partition(".")[0]
    own = {*code.co_varnames} - {*code.co_cellvars} if code.co_flags & CO_OPTIMIZED else set()
    if depth == 0 and key is not None and not (loop or labels) and owner in _variables(code):
        return HeldItem(depth, variable, key, loop, name)
    if depth > 1 and own >= ({owner, loop} if loop else {owner}):
        standing = StandingHolder(depth, variable, key, loop, name, labels)
        standing.place = _interned((depth, code, owner, loop))
        return standing
    return Holder(depth, variable, key, loop, name, labels)


def _variables(code: CodeType) -> set[str]:
    """All variables of a function."""
    return {*code.co_varnames, *code.co_cellvars, *code.co_freevars}


@functools.lru_cache(maxsize=source.PLACES)
def _interned(facts: tuple[object, ...]) -> tuple[object, ...]:
    """One and the same of all equal ``facts``."""
    return facts


def above(frame: FrameType, depth: int) -> FrameType:
    """The frame ``depth`` calls above ``frame``."""
    for _ in range(depth):
        frame = frame.f_back or frame
    return frame
