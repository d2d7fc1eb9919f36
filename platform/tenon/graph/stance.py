"""What compiled functions do for now: torch.compiler's ``set_stance``.

Read in each call of a compiled function, by all threads.
"""

from __future__ import annotations

import functools
from typing import Any

from tenon.errors import ArgumentError, CaptureError

#: "eager_then_compile" and its kin are what "default" does here: a first call is eager.
STANCES = (
    "default",
    "force_eager",
    "eager_on_recompile",
    "fail_on_recompile",
    "eager_then_compile",
    "aot_eager_then_compile",
)


class Stance:
    """The stance that holds."""

    __slots__ = ("eager", "name")

    def __init__(self) -> None:
        self.take("default")

    def take(self, name: str) -> None:
        """Let ``name`` hold."""
        if name not in STANCES:
            raise ArgumentError(f"set_stance: invalid stance {name!r}. Use one of {', '.join(STANCES)}.")
        self.name = name
        #: Whether compiled functions are not even asked for their programs.
        self.eager = name == "force_eager"

    def may_record(self, function: str) -> bool:
        """Whether a call without a program may make one; an error where there must be one."""
        if self.name == "fail_on_recompile":
            raise CaptureError(
                f"Detected recompile when torch.compile stance is 'fail_on_recompile': {function} has no "
                "program for this call. Call it with such arguments before, or set another stance."
            )
        return self.name != "eager_on_recompile"


STANCE = Stance()


class set_stance:
    """Let compiled functions do as ``stance`` says: from now on, in a block, or in a function it decorates.

    ``"force_eager"``: run eagerly. ``"eager_on_recompile"``: replay what was compiled, run all else eagerly.
    ``"fail_on_recompile"``: replay what was compiled, all else is an error. ``"default"``: none of these.

    >>> import tenon
    >>> double = tenon.compile(lambda x: x * 2)
    >>> with tenon.compiler.set_stance("force_eager"):
    ...     for _ in range(4):
    ...         y = double(tenon.ones(3))
    >>> double.programs
    []
    """

    def __init__(
        self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: Any = None
    ) -> None:
        if skip_guard_eval_unsafe or force_backend is not None:
            raise ArgumentError(
                "set_stance: skip_guard_eval_unsafe and force_backend are not known here; leave them away."
            )
        self._before, self._stance = STANCE.name, stance
        STANCE.take(stance)

    def __enter__(self) -> None:
        STANCE.take(self._stance)

    def __exit__(self, *exc: object) -> None:
        STANCE.take(self._before)

    def __call__(self, function: Any) -> Any:
        """``function``, during whose calls the stance holds; not now."""
        STANCE.take(self._before)

        @functools.wraps(function)
        def standing(*args: Any, **kwargs: Any) -> Any:
            with set_stance(self._stance):
                return function(*args, **kwargs)

        return standing
