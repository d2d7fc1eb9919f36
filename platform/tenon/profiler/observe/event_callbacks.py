"""Records of events that are not ops: module calls, spans, optimizer steps, collectives, program runs."""

from __future__ import annotations

import itertools
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from tenon.distributed.communication.calls import Call
from tenon.distributed.communication.communicator import Communicator
from tenon.graph.program import Program
from tenon.nn.module import Module
from tenon.optim.optimizer import Optimizer
from tenon.profiler.observe.records import ANNOTATION, COLLECTIVE, MODULE, OPERATOR, PROGRAM, SPAN, WAIT

if TYPE_CHECKING:
    from tenon.profiler.observe.tap import Tap

R = TypeVar("R")
now = time.perf_counter_ns


class EventCallbacks:
    """The callbacks by which a tap records module calls, spans, steps, collectives and programs."""

    def __init__(self, tap: Tap) -> None:
        self._tap = tap
        self._modules = tap.options.modules
        self._number = itertools.count(1).__next__
        self._labels: dict[tuple[str, str], str] = {}
        #: Per communicator: the number of earlier ones with the same ranks, and a counter of its calls.
        self._calls: weakref.WeakKeyDictionary[Communicator, tuple[int, itertools.count[int]]]
        self._calls = weakref.WeakKeyDictionary()
        self._groups: Counter[tuple[int, ...]] = Counter()

    # Module calls: ``scopes.Listener``.

    def enter(self, path: str, module: Module) -> None:
        """Called when a module call begins."""
        lane = self._tap.lane()
        calls = lane.calls
        if path and calls:
            key = (calls[0][0], path)
            label = self._labels.get(key)
            if label is None:
                label = self._labels[key] = f"{key[0]}.{path}"
        else:
            label = type(module).__name__
        calls.append((label, now(), self._number(), lane.module))
        lane.module = label

    def leave(self, path: str, module: Module) -> None:
        """Called when a module call has returned or raised."""
        lane = self._tap.lane()
        if not lane.calls:  # the module call began before the tap was open
            return
        label, begin, number, before = lane.calls.pop()
        lane.module = before
        if self._modules:
            caller = lane.calls[-1][2] if lane.calls else None
            kind = type(module).__name__
            lane.extend((MODULE, label, begin, now(), kind, id(module), lane.phase, number, caller))

    # Spans: ``WATCHERS.span``.

    @contextmanager
    def span(self, name: str, phase: str) -> Iterator[None]:
        """Record a block in ``phase``: "data" is recorded as an op, as by Kineto; "wait" does not change the
        phase."""
        lane = self._tap.lane()
        before, begin = lane.phase, now()
        category = WAIT if phase == "wait" else OPERATOR if phase == "data" else ANNOTATION
        if phase != "wait":
            lane.phase = phase
        try:
            yield
        finally:
            lane.extend((SPAN, name, begin, now(), category, lane.phase, None))
            lane.phase = before

    # Optimizers: global step hooks.

    def stepping(self, optimizer: Optimizer, args: object, kwargs: object) -> None:
        """Called when an optimizer step begins."""
        lane = self._tap.lane()
        lane.steps.append((optimizer, now(), lane.phase))
        lane.phase = "optimizer"

    def stepped(self, optimizer: Optimizer, args: object, kwargs: object) -> None:
        """Called when an optimizer step has ended; also drops nested steps that raised."""
        lane = self._tap.lane()
        while lane.steps:
            latest, begin, lane.phase = lane.steps.pop()
            if latest is optimizer:
                name = f"Optimizer.step#{type(optimizer).__name__}.step"
                lane.extend((SPAN, name, begin, now(), ANNOTATION, "optimizer", None))
                return

    # Collectives: ``communicator.around_call``.

    def collective(
        self, communicator: Communicator, call: Call, perform: Callable[..., R], args: tuple[object, ...]
    ) -> R:
        """Record a collective: the wait for the other ranks, then the transfer."""
        if communicator.size == 1:
            communicator.agree(call)
            return perform(*args)
        lane = self._tap.lane()
        begin = now()
        communicator.agree(call)
        agreed = now()
        result = perform(*args)
        end = now()
        ranks = communicator.ranks
        counts = self._calls.get(communicator)
        if counts is None:
            counts = self._calls[communicator] = self._groups[ranks], itertools.count()
            self._groups[ranks] += 1
        group, numbers = counts
        lane.extend((COLLECTIVE, call, begin, agreed, end, next(numbers), ranks, group))
        return result

    # Programs: ``program.on_bind``.

    def marker(self, program: Program) -> Callable[[int], None]:
        """Return ``mark(line)``, which times the lines of ``program``: see ``Program.timed``."""
        tap, name, steps = self._tap, program.name, program.steps()
        times: list[int] = []

        def mark(line: int) -> None:
            nonlocal times
            if line > 0:
                times.append(line)
                times.append(now())
            elif line == 0:
                times = [now()]
            else:
                lane = tap.lane()
                lane.extend((PROGRAM, name, steps, times, lane.phase, now()))

        return mark
