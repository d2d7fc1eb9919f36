"""The part of a recorder for Python's side effects: random draws, values read back, schedules, collectives,
and exchanges of memory."""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import numpy as np

from tenon.engine.op import table
from tenon.engine.types import Array
from tenon.errors import CaptureError, DivergedError
from tenon.graph.graph import Graph
from tenon.graph.guards import Guard
from tenon.graph.ops import host_call
from tenon.graph.values import Values
from tenon.tensors.call_site import user_line
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.optim.optimizer import Optimizer


class SideEffects:
    """Callbacks for side effects of the recorded function that are not ops."""

    graph: Graph
    values: Values
    guards: list[Guard]
    #: Guards that are dropped if they do not hold when the function returns, as it set those values itself.
    value_guards: list[Guard]
    optimizers: dict[int, Optimizer]
    #: Side effects to repeat after every run.
    after: list[Callable[[], None]]
    failure: CaptureError | None
    #: Whether a run of the program may stop in the middle: see ``expect``.
    expects: bool
    #: Called when the function has returned: each describes an effect that no replay could repeat, or returns
    #: None.
    final_checks: list[Callable[[], str | None]]
    _rescheduled: set[int]
    _paused: bool
    _read: Callable[[Array], np.ndarray]

    def _listens(self) -> bool:
        raise NotImplementedError

    def refuse(self, error: CaptureError) -> None:
        """Give up recording for the reason ``error``."""
        raise NotImplementedError

    def exchanged(self, tensor: Tensor) -> None:
        """Callback: ``tensor`` is about to be rebound to other memory."""
        entry = self.values.find(tensor.raw)
        if self._listens() and (entry is None or entry.storage.node is not None):
            self.unsupported("replacing the memory of a tensor from outside (data=, an in-place view, out=)")

    def unsupported(self, what: str) -> None:
        """Refuse to record an effect that no replay could repeat."""
        if self._listens():
            self.refuse(
                CaptureError(
                    f"{what} cannot be recorded, at {user_line()}. Do it outside of the compiled function."
                )
            )

    def reseeded(self, what: str, again: Callable[[], object] | None) -> None:
        """Callback: a random generator was seeded, or its state set, which ``again`` repeats."""
        if not self._listens():
            return
        if again is None:
            self.unsupported(f"Generator.{what}()")
        else:
            self.graph.call(host_call, (), {"call": again}, ()).where = user_line()

    def assigning(self, module: object, name: str) -> None:
        """Callback: an attribute of a module is about to be assigned."""

    def verifying(self) -> AbstractContextManager[None]:
        """Return a context in which Python reads values only to check them: these reads count as any others,
        so that the checks are made in every run."""
        return contextlib.nullcontext()

    def host_draw(self, make: Callable[..., Array], *tensors: Tensor) -> Tensor:
        """Return a tensor of ``make(*arrays)``, random numbers that every run draws again."""
        return table.host_draw(*tensors, make=make)

    def host_map(
        self,
        make: Callable[..., Sequence[Array]],
        tensors: list[Tensor],
        places: Callable[[], Sequence[np.ndarray] | None] | None = None,
    ) -> tuple[Tensor, ...]:
        """Return tensors of ``make(*arrays)``, which all ranks compute together in every run; see
        ``HostMap``."""
        return table.host_map(*tensors, make=make, places=places)

    def expect(self, condition: Tensor, value: Tensor, what: str) -> Tensor | None:
        """Return ``value`` if all of ``condition`` is true now, else None.

        A run in which ``condition`` is false stops before the ops that depend on the result and before any
        write, and the call runs eagerly; ``what`` describes that case in reports.
        """
        if not bool(self._read(condition.raw).all()):
            self.failure = self.failure or DivergedError(what)
            return None
        self.expects = True
        return table.host_draw(condition, value, make=functools.partial(_expected, what))

    def at_end(self, problem: Callable[[], str | None]) -> None:
        """Call ``problem`` when the function has returned: it returns a reason not to compile, or None."""
        self.final_checks.append(problem)

    def listening(self) -> bool:
        """Whether the current thread is being recorded."""
        return self._listens()

    def guard_value(self, what: str, get: Callable[[], object]) -> None:
        """Guard that ``get()`` equals its present value, unless the function itself changes it."""
        if self._listens():
            value = get()
            self.value_guards.append(Guard(what, lambda: bool(get() == value)))

    def _host_read(self, raw: Array) -> np.ndarray:
        """Replace ``backend.to_host``: Python reads the values of ``raw``, which is possible for constants
        only."""
        if not self._listens():
            return self._read(raw)
        entry = self.values.find(raw)
        if entry is None:
            recorded = raw.copy()
            reference = weakref.ref(raw)

            def same() -> bool:
                now = reference()
                return now is not None and bool((now == recorded).all())

            self.guards.append(Guard(f"a value read by Python at {user_line()}", same))
            return self._read(raw)
        ref = self.values.read(entry)
        if ref.node.kind == "constant":
            return self._read(raw)
        self.refuse(
            CaptureError(
                f"Python reads the value of a tensor of shape {list(raw.shape)} at {user_line()} (item(), "
                "numpy(), float(), an if or a print). A compiled function cannot branch on values: compute "
                "with where(), return the tensor and read it after the call, or leave this part out of the "
                "compiled function."
            )
        )
        return self._read(raw)

    def reading(self, raw: Array, what: str) -> None:
        """Callback: the shape of a result is about to depend on the values of ``raw``."""
        entry = self.values.find(raw)
        if self._listens() and (entry is None or self.values.read(entry).node.kind != "constant"):
            self.refuse(
                CaptureError(
                    f"{what} returns a result whose shape depends on the data, at {user_line()}. A compiled"
                    " function has static shapes: use a form with a fixed shape (masked_fill, where), or"
                    " leave this part out of it."
                )
            )

    @contextlib.contextmanager
    def again(self, optimizer: Optimizer, effect: Callable[[], None]) -> Iterator[None]:
        """The context in which a schedule changes options of ``optimizer``; ``effect`` repeats it after
        runs."""
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


def _expected(what: str, condition: np.ndarray, value: np.ndarray) -> np.ndarray:
    if not condition.all():
        raise DivergedError(what)
    return value.copy()
