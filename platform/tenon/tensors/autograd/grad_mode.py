"""Whether ops are taped: ``no_grad``, ``enable_grad``, ``set_grad_enabled``, ``inference_mode``.

Each works as a context manager and as a decorator (of functions and of generator functions), as in
PyTorch. The state is per thread: ``engine/grad_mode.py:MODE``.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Generator
from typing import Any, ClassVar, Self, TypeVar, cast

from tenon.engine.grad_mode import MODE

Function = TypeVar("Function", bound=Callable[..., object])


class GradContext:
    """Base of the context managers, which restore the previous mode; also usable as decorators."""

    def __init__(self) -> None:
        self._previous: list[tuple[bool, bool]] = []

    def _target(self) -> tuple[bool, bool]:
        raise TypeError("GradContext is a base class; use no_grad, enable_grad or set_grad_enabled.")

    def __enter__(self) -> None:
        self._previous.append((MODE.enabled, MODE.inference))
        MODE.set(*self._target())

    def __exit__(self, *exc: object) -> None:
        MODE.set(*self._previous.pop())

    def clone(self) -> GradContext:
        """Return a new context of the same kind, so that decorated functions may call themselves."""
        return type(self)()

    def __call__(self, function: Function) -> Function:
        """Decorate ``function`` so that each call runs in this mode."""
        decorated: Callable[..., object]
        if inspect.isclass(function):
            warnings.warn(
                "Decorating classes is deprecated and will be disabled in future versions. Decorate functions"
                " or methods: of a class, only its __init__ runs in the mode.",
                FutureWarning,
                stacklevel=2,
            )
            function.__init__ = self(function.__init__)  # type: ignore[method-assign]  # an instance's, to mypy
            return function
        if inspect.isgeneratorfunction(function):
            decorated = _wrap_generator(self, function)
            return cast(Function, decorated)

        @functools.wraps(function)
        def guarded(*args: object, **kwargs: object) -> object:
            with self.clone():
                return function(*args, **kwargs)

        return cast(Function, guarded)


def _wrap_generator(
    context: GradContext, function: Callable[..., Generator[object, object, object]]
) -> Callable[..., Generator[object, object, object]]:
    """Enter the mode only while the generator's own code runs, not between its yields."""

    @functools.wraps(function)
    def decorated(*args: object, **kwargs: object) -> Generator[object, object, object]:
        generator = function(*args, **kwargs)
        try:
            with context.clone():
                item = generator.send(None)
            while True:
                try:
                    sent = yield item
                except GeneratorExit:
                    with context.clone():
                        generator.close()
                    raise
                except BaseException as error:
                    with context.clone():
                        item = generator.throw(error)
                else:
                    with context.clone():
                        item = generator.send(sent)
        except StopIteration as stop:
            return stop.value

    return decorated


class _Decorating(GradContext):
    """A context that may also be written without parentheses: ``@no_grad``."""

    def __new__(
        cls, function: Callable[..., object] | None = None
    ) -> Any:  # a context, or ``function``'s type
        if function is None:
            return super().__new__(cls)
        return cls()(function)

    def __init__(self, function: None = None) -> None:
        super().__init__()


class no_grad(_Decorating):
    """Disable gradient tracking: ops inside are not recorded and results do not require grad."""

    def _target(self) -> tuple[bool, bool]:
        return False, MODE.inference


class enable_grad(_Decorating):
    """Enable gradient tracking, also within ``no_grad``, but not within ``inference_mode``."""

    def _target(self) -> tuple[bool, bool]:
        return not MODE.inference, MODE.inference


class set_grad_enabled(GradContext):
    """Set the grad mode immediately; as a context manager, restore it on exit."""

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self.mode = bool(mode)
        self._previous.append((MODE.enabled, MODE.inference))
        MODE.enabled = self.mode

    def __enter__(self) -> None:
        MODE.enabled = self.mode

    def _target(self) -> tuple[bool, bool]:
        return self.mode, MODE.inference

    def __call__(self, function: Function) -> Function:
        """Decorate ``function``: the mode is set for each call, not immediately."""
        MODE.set(*self._previous[-1])
        return super().__call__(function)

    def clone(self) -> GradContext:
        """Return a new context for the same mode."""
        return set_grad_enabled(self.mode)


class inference_mode(GradContext):
    """Disable gradient tracking as ``no_grad``; tensors created inside can never take part in autograd.

    Saving one for a backward pass, or writing to one outside, is a GradError; ``clone()`` returns a normal
    tensor. Inside ``inference_mode(False)`` normal tensors are created again.

    >>> import tenon
    >>> with tenon.inference_mode():
    ...     x = tenon.ones(2)
    >>> x.is_inference(), x.clone().is_inference()
    (True, False)
    """

    def __new__(cls, mode: bool | Callable[..., object] = True) -> Any:  # a context, or the type of ``mode``
        """A context; given a function, that function decorated."""
        if isinstance(mode, bool):
            return super().__new__(cls)
        return cls()(mode)

    def __init__(self, mode: bool = True) -> None:
        super().__init__()
        self.mode = mode

    def _target(self) -> tuple[bool, bool]:
        return not self.mode, self.mode

    def clone(self) -> GradContext:
        """Return a new context for the same mode."""
        return inference_mode(self.mode)


class _Switch:
    """A thread-local mode that is set immediately; as a context manager, restored on exit."""

    _name: ClassVar[str]

    def __init__(self, mode: bool) -> None:
        self.previous = getattr(MODE, self._name)
        self.mode = bool(mode)
        setattr(MODE, self._name, self.mode)

    def __enter__(self) -> None:
        """Do nothing: the constructor has set the mode."""

    def __exit__(self, *exc: object) -> None:
        setattr(MODE, self._name, self.previous)

    def clone(self) -> Self:
        """Return a new context for the same mode."""
        return type(self)(self.mode)


class set_multithreading_enabled(_Switch):
    """Accepted for compatibility and recorded: a backward pass always runs in its caller's thread."""

    _name = "multithreading"


def is_multithreading_enabled() -> bool:
    """The value last set by ``set_multithreading_enabled`` in this thread."""
    return MODE.multithreading


class _force_original_view_tracking(_Switch):
    """From now on, or inside a ``with`` block, name the ``grad_fn`` of a view that was modified in place
    after the view's op, not ``as_strided``. Gradients are computed through these ops in either mode."""

    _name = "replay"


def is_view_replay_enabled() -> bool:
    """Whether ``_force_original_view_tracking(True)`` is active in this thread."""
    return MODE.replay


def is_grad_enabled() -> bool:
    """Whether ops are recorded for autograd in this thread."""
    return MODE.enabled


def is_inference_mode_enabled() -> bool:
    """Whether this thread is inside ``inference_mode``."""
    return MODE.inference
