"""The part of a recorder that handles Python's effects beside the ops: random draws, values read back,
schedules, collectives, and exchanges of memory."""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from tenon.engine.op import table
from tenon.errors import CaptureError, DivergedError
from tenon.graph.graph import Graph
from tenon.graph.guards import Guard
from tenon.graph.ops import host_call
from tenon.graph.values import Values
from tenon.tensors.where import user_line


class SideEffects:
    """Callbacks for Python's effects beside the ops."""

    graph: Graph
    values: Values
    guards: list[Guard]
    #: Guards that fall away if they do not hold when the function returns: it sets those values itself.
    value_guards: list[Guard]
    optimizers: dict[int, Any]
    after: list[Callable[[], None]]
    failure: CaptureError | None
    #: Whether programs may stop in the middle.
    expects: bool
    questions: list[Callable[[], str | None]]
    _rescheduled: set[int]
    _paused: bool
    _read: Any

    def _listens(self) -> bool:
        raise NotImplementedError

    def refuse(self, error: CaptureError) -> None:
        """Give up recording, with a reason."""
        raise NotImplementedError

    def exchanged(self, tensor: Any) -> None:
        """Callback: ``tensor`` is about to be rebound to other memory."""
        entry = self.values.find(tensor.raw)
        if self._listens() and (entry is None or entry.storage.node is not None):
            self.unsupported("giving a tensor from outside other memory (data=, an in-place view, out=)")

    def unsupported(self, what: str) -> None:
        """Refuse to record an effect that no replay could repeat."""
        if self._listens():
            self.refuse(
                CaptureError(
                    f"{what} cannot be recorded, at {user_line()}. Do it outside of the compiled function."
                )
            )

    def reseeded(self, what: str, again: Callable[[], Any] | None) -> None:
        """Callback: a random generator was seeded, or its state set."""
        if not self._listens():
            return
        if again is None:
            self.unsupported(f"Generator.{what}()")
        else:
            self.graph.call(host_call, (), {"call": again}, ()).where = user_line()

    def host_draw(self, make: Callable[..., Any], *tensors: Any) -> Any:
        """A tensor of numbers that Python draws anew at every run: ``make(*arrays)``."""
        return table.host_draw(*tensors, make=make)

    def host_map(
        self, make: Callable[..., Any], tensors: list[Any], places: Callable[[], Any] | None = None
    ) -> Any:
        """The tensors ``make(*arrays)``, made by all ranks together, anew at every run; see ``HostMap``."""
        return table.host_map(*tensors, make=make, places=places)

    def expect(self, condition: Any, value: Any, what: str) -> Any | None:
        """``value`` if ``condition`` holds now, else None; both are tensors.

        Programs run on only while it does: otherwise they stop before what depends on the result, having
        written nothing, and the call runs eagerly.
        """
        if not bool(self._read(condition.raw).all()):
            self.failure = self.failure or DivergedError(what)
            return None
        self.expects = True
        return table.host_draw(condition, value, make=functools.partial(_expected, what))

    def at_end(self, problem: Callable[[], str | None]) -> None:
        """When the function has returned, ask what about it no replay could repeat, if anything."""
        self.questions.append(problem)

    def listening(self) -> bool:
        """Whether the current thread is being recorded."""
        return self._listens()

    def guard_value(self, what: str, get: Callable[[], Any]) -> None:
        """The recording holds while ``get()`` equals what it is now, unless the function itself sets that."""
        if self._listens():
            value = get()
            self.value_guards.append(Guard(what, lambda: bool(get() == value)))

    def _host_read(self, raw: Any) -> Any:
        if not self._listens():
            return self._read(raw)
        entry = self.values.find(raw)
        if entry is None:
            held = raw.copy()
            reference = weakref.ref(raw)

            def same() -> bool:
                now = reference()
                return now is not None and bool((now == held).all())

            self.guards.append(Guard(f"a value read by Python at {user_line()}", same))
            return self._read(raw)
        ref = self.values.read(entry)
        if ref.node.kind == "constant":
            return self._read(raw)
        self.refuse(
            CaptureError(
                f"Python reads the value of a tensor of shape {list(raw.shape)} at {user_line()} (item(), "
                "numpy(), float(), an if or a print). A compiled function decides nothing on values: compute "
                "with where(), return the tensor and read it after the call, or leave this part out of the "
                "compiled function."
            )
        )
        return self._read(raw)

    def reading(self, raw: Any, what: str) -> None:
        """An op is about to choose shapes by the values of ``raw``."""
        entry = self.values.find(raw)
        if self._listens() and (entry is None or self.values.read(entry).node.kind != "constant"):
            self.refuse(
                CaptureError(
                    f"{what} gives a result whose shape depends on the data, at {user_line()}. A compiled"
                    " function has static shapes: use a form with a fixed shape (masked_fill, where), or"
                    " leave this part out of it."
                )
            )

    @contextlib.contextmanager
    def again(self, optimizer: Any, effect: Callable[[], None]) -> Iterator[None]:
        """Python changes the options of ``optimizer`` inside, and has to do so after every run."""
        if not self._listens():
            yield
            return
        if id(optimizer) not in self.optimizers:
            self.unsupported("a scheduler's step before that of its optimizer")
        self.after.append(effect)
        self._rescheduled.add(id(optimizer))
        self._paused = True
        try:
            yield
        finally:
            self._paused = False


def _expected(what: str, condition: Any, value: Any) -> Any:
    if not condition.all():
        raise DivergedError(what)
    return value.copy()
