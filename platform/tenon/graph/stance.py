"""The process-wide policy of compiled functions: torch.compiler's ``set_stance``.

All threads read it in each call of a compiled function.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from tenon.errors import ArgumentError, CaptureError

P = ParamSpec("P")
R = TypeVar("R")

#: "eager_then_compile" and "aot_eager_then_compile" equal "default" here: a first call is always eager.
STANCES = (
    "default",
    "force_eager",
    "eager_on_recompile",
    "fail_on_recompile",
    "eager_then_compile",
    "aot_eager_then_compile",
)


class Stance:
    """The active stance."""

    __slots__ = ("_blocks", "_lock", "eager", "name")

    def __init__(self) -> None:
        self._blocks, self._lock = 0, threading.Lock()
        self.activate("default")

    def activate(self, name: str) -> None:
        """Activate the stance ``name``."""
        if name not in STANCES:
            raise ArgumentError(f"set_stance: invalid stance {name!r}. Use one of {', '.join(STANCES)}.")
        self.name = name
        #: Whether compiled functions run eagerly without looking up a program.
        self.eager = name == "force_eager" or self._blocks > 0

    @contextlib.contextmanager
    def forced_eager(self) -> Iterator[None]:
        """Run compiled functions eagerly inside, whatever the stance; threads may have overlapping blocks."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        with self._lock:
            self._blocks += change
            self.activate(self.name)

    def may_record(self, function: str) -> bool:
        """Whether a call without a program may record one; CaptureError under "fail_on_recompile"."""
        if self.name == "fail_on_recompile":
            raise CaptureError(
                f"Detected recompile when torch.compile stance is 'fail_on_recompile': {function} has no "
                "program for this call. Call it with such arguments before, or set another stance."
            )
        return self.name != "eager_on_recompile"


STANCE = Stance()


class set_stance:
    """Set the stance of compiled functions: from now on, within a block, or in a function it decorates.

    ``"force_eager"``: run eagerly. ``"eager_on_recompile"``: replay what was compiled, run everything else
    eagerly. ``"fail_on_recompile"``: replay what was compiled, raise CaptureError otherwise. ``"default"``:
    compile as needed.

    >>> import tenon
    >>> double = tenon.compile(lambda x: x * 2)
    >>> with tenon.compiler.set_stance("force_eager"):
    ...     for _ in range(4):
    ...         y = double(tenon.ones(3))
    >>> double.programs
    []
    """

    def __init__(
        self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: object = None
    ) -> None:
        if skip_guard_eval_unsafe or force_backend is not None:
            raise ArgumentError(
                "set_stance: skip_guard_eval_unsafe and force_backend are not supported; omit them."
            )
        self._before, self._stance = STANCE.name, stance
        STANCE.activate(stance)

    def __enter__(self) -> None:
        STANCE.activate(self._stance)

    def __exit__(self, *exc: object) -> None:
        STANCE.activate(self._before)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return ``function`` decorated with the stance; the previous stance becomes active again now."""
        STANCE.activate(self._before)

        @functools.wraps(function)
        def with_stance(*args: P.args, **kwargs: P.kwargs) -> R:
            with set_stance(self._stance):
                return function(*args, **kwargs)

        return with_stance
