"""The chain of calls that leads to a collective, found again in as few steps as possible.

Sites (``site.py``) are cached by the code and the instruction of each frame, so that a call costs a walk over
a few frames.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from types import CodeType, FrameType

from tenon.distributed.communication.callers import Callers
from tenon.distributed.communication.calls import Implied, Recorded
from tenon.distributed.communication.origin import Origin
from tenon.distributed.communication.site import Site
from tenon.distributed.communication.steps import Argument, Followed, is_tenon

DEPTH = 4
"""Number of frames that identify a site: wrappers around a collective, and their callers. Each takes 0.2
us."""
SITES = 4096
"""Size of the cache of call sites: parsing one takes as long as a thousand sums."""
GENERATORS = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR
"""Flags of the code of functions that may go on with other callers."""
PROGRAM = "<tenon program"
"""Prefix of the file name of a compiled program."""
AT_LEAF, LEAF = "_at_leaf", "leaf"
"""The function of ``engine/hooks.py`` that runs hooks of a leaf, and its variable."""
COMPILE, RECORDING = (os.path.join("tenon", "graph", name) for name in ("compile.py", "recording.py"))
"""The files that call a compiled function as it stands, and that record such a call."""


class _End:
    """In place of the frames beyond the outermost one."""

    f_code: CodeType | None = None
    f_lasti = -1
    f_trace = None

    @property
    def f_back(self) -> _End:
        return self


END = _End()


class Chain:
    """The code and instruction of each of ``DEPTH`` frames, their site, and the chain that last came next.

    ``callers`` stands for all of it from the second frame's code on (``callers.py``).
    """

    __slots__ = (
        "at_1", "at_2", "at_3", "at_4", "callers", "code_1", "code_2", "code_3", "code_4", "is_compiled",
        "is_kept", "next", "site",
    )  # fmt: skip

    def __init__(
        self, frames: Sequence[FrameType | _End], site: Site | None, is_compiled: bool = False
    ) -> None:
        self.code_1, self.code_2, self.code_3, self.code_4 = (each.f_code for each in frames)
        self.at_1, self.at_2, self.at_3, self.at_4 = (each.f_lasti for each in frames)
        self.site: Site = site  # type: ignore[assignment]  # None in chains that are never expected
        self.next = self
        self.is_compiled = is_compiled
        """Whether a frame is of ``COMPILE``, so that the caller may be further out; it is never expected."""
        if is_compiled:
            self.code_1 = None
        code = self.code_2
        key = id(code), id(self.code_3), self.at_3, id(self.code_4), self.at_4
        self.callers = _callers.setdefault(key, Callers())
        self.is_kept = code is not None and not code.co_flags & GENERATORS
        """Whether frames of ``code_2`` keep ``callers``: not those of generators, which go on elsewhere."""


class _Latest:
    """``chain`` is that of the last call. Threads may mix up what came next: it is compared before use."""

    __slots__ = ("chain",)

    def __init__(self) -> None:
        self.chain = Chain([END] * DEPTH, None)


_callers: dict[tuple[int, ...], Callers] = {}
_chains: dict[tuple[int, ...], Chain] = {}
LATEST = _Latest()


def find(frame: FrameType, argument: Argument | None, strict: bool) -> Site:
    """The site of a collective that the code of ``frame`` has called."""
    # Programs make the same calls in turn. To compare with the chain that came next last time takes half as
    # long as a lookup; it is unrolled, as a loop takes 0.1 us more.
    second = frame.f_back or END
    third = second.f_back or END
    fourth = third.f_back or END
    expected = LATEST.chain.next
    if (
        frame.f_lasti == expected.at_1
        and frame.f_code is expected.code_1
        and second.f_lasti == expected.at_2
        and second.f_code is expected.code_2
        and third.f_lasti == expected.at_3
        and third.f_code is expected.code_3
        and fourth.f_lasti == expected.at_4
        and fourth.f_code is expected.code_4
    ):
        LATEST.chain = expected
    else:
        expected = _look_up((frame, second, third, fourth), argument, strict)
        LATEST.chain.next = expected
        LATEST.chain = expected
    if expected.is_compiled:
        return _find_in(frame, argument, strict)
    return expected.site


def _look_up(frames: Sequence[FrameType | _End], argument: Argument | None, strict: bool) -> Chain:
    """The chain of ``frames``, from the cache or new."""
    first, second, third, fourth = frames
    key = (
        id(first.f_code), first.f_lasti, id(second.f_code), second.f_lasti,
        id(third.f_code), third.f_lasti, id(fourth.f_code), fourth.f_lasti,
    )  # fmt: skip
    chain = _chains.get(key)
    if chain is None:
        if len(_chains) >= SITES:
            _chains.clear()
            _callers.clear()
        known = [each for each in frames if not isinstance(each, _End)]
        if any(each.f_code.co_filename.endswith(COMPILE) for each in known):
            chain = Chain(frames, None, is_compiled=True)
        else:
            chain = Chain(frames, Site(list(enumerate(known)), argument, strict))
        _chains[key] = chain
    return chain


def at_run(name: str | None) -> str | None:
    """Return ``name``, that of an op which the caller runs; in a compiled program, and while one is recorded,
    with the caller's place added.

    ``name`` was inferred when the program was recorded.
    """
    if type(name) is not Recorded:
        return name
    each: FrameType | None = sys._getframe(2)
    if each is not None and not each.f_code.co_filename.startswith(PROGRAM):
        while each is not None and not each.f_code.co_filename.endswith(RECORDING):
            each = each.f_back
    return name if each is None else called_from(name, each, None, "compiled and called")


def called_from(name: Implied, frame: FrameType, tensor: object, how: str) -> Implied:
    """``name`` with the place of the program from which this library has run the code of ``frame``.

    ``tensor`` is looked for in the variables there.
    """
    each: FrameType | None = frame
    while each is not None and (each.f_code.co_filename.startswith("<tenon") or is_tenon(each)):
        each = each.f_back
    if each is None:
        return name
    site = _find_in(each, name.followed, False)
    outer = site.of_tensor(tensor, each) if site.chooses or tensor is not None else site.name
    return _within(name, outer, how)


_found: dict[tuple[object, ...], Site] = {}


def _find_in(frame: FrameType, argument: Argument | Followed | None, strict: bool) -> Site:
    """The site of ``frame``, which has ``argument``; cached.

    Frames of ``COMPILE`` do not count. That of ``RECORDING`` is the last one: the call runs elsewhere too.
    """
    chain: list[tuple[int, FrameType]] = []
    each: FrameType | None = frame
    depth = 0
    while each is not None and len(chain) < DEPTH:
        file = each.f_code.co_filename
        if not file.endswith(COMPILE):
            chain.append((depth, each))
        each, depth = None if file.endswith(RECORDING) else each.f_back, depth + 1
    key = argument, strict, *((depth, id(each.f_code), each.f_lasti) for depth, each in chain)
    site = _found.get(key)
    if site is None:
        if len(_found) >= SITES:
            _found.clear()
        site = _found[key] = Site(chain, argument, strict)
    return site


@functools.lru_cache(maxsize=SITES)
def _within(name: Implied, outer: Implied, how: str) -> Implied:
    """``name``, inferred in code that this library has run, in a call at the place of ``outer``."""

    def origin() -> Origin:
        inner, around = name.origin, outer.origin
        return replace(
            inner,
            aliases=[*inner.aliases, *around.aliases],
            indices={**inner.indices, **around.indices},
            owners={**around.owners, **inner.owners},
            loops=inner.loops or around.loops or bool(around.aliases or around.indices),
            places=[*inner.places, *around.places],
            within=around.within if around.loops else inner.within,
        )

    place = outer.shown.removeprefix("at ")
    return Implied(f"{name.shown}, {how} at {place}\n{name.hidden}{outer.hidden}", origin)
