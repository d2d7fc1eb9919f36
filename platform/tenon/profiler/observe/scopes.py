"""``record_function``: label a block of the program, as PyTorch does; no effect while no profile is open."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from tenon.profiler.observe.records import ANNOTATION, SPAN

if TYPE_CHECKING:
    from tenon.profiler.observe.tap import Tap

P = ParamSpec("P")
R = TypeVar("R")


class _Open:
    """The tap of the profile in progress, for the whole process."""

    tap: Tap | None = None


OPEN = _Open()


class record_function:
    """Record the block as ``name`` in profiles; a context manager, or a decorator of functions.

    >>> with record_function("pre-processing"):
    ...     pass
    """

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name, self.args = name, args
        self._begins: list[int] = []

    def __enter__(self) -> record_function:
        self._begins.append(0 if OPEN.tap is None else time.perf_counter_ns())
        return self

    def __exit__(self, *exception: object) -> None:
        begin, tap = self._begins.pop(), OPEN.tap
        if begin and tap is not None:
            lane = tap.lane()
            end = time.perf_counter_ns()
            lane.extend((SPAN, self.name, begin, end, ANNOTATION, lane.phase, self.args))

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Wrap ``function`` so that each call is recorded."""

        @functools.wraps(function)
        def labelled(*args: P.args, **kwargs: P.kwargs) -> R:
            with record_function(self.name, self.args):
                return function(*args, **kwargs)

        return labelled
