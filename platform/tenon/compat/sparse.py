"""PyTorch's module ``torch.sparse``: sparse tensors are not supported; only the flag that checks them
exists."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["check_sparse_tensor_invariants"]


P = ParamSpec("P")
R = TypeVar("R")


class check_sparse_tensor_invariants:
    """PyTorch's flag for checking the indices of sparse tensors; as there are none, it has no effect.

    Use ``enable()`` and ``disable()``, or an instance as context manager or decorator.

    >>> with check_sparse_tensor_invariants():
    ...     check_sparse_tensor_invariants.is_enabled()
    True
    """

    _enabled = False

    def __init__(self, enable: bool = True) -> None:
        self._enable = enable
        self._before: bool | None = None

    @staticmethod
    def is_enabled() -> bool:
        """Whether the checks are enabled."""
        return check_sparse_tensor_invariants._enabled

    @staticmethod
    def enable() -> None:
        """Enable the checks."""
        check_sparse_tensor_invariants._enabled = True

    @staticmethod
    def disable() -> None:
        """Disable the checks."""
        check_sparse_tensor_invariants._enabled = False

    def __enter__(self) -> None:
        if self._before is not None:
            raise RuntimeError(
                "This context manager is already activated. Use a different context manager instance for "
                "context nesting."
            )
        self._before = self.is_enabled()
        check_sparse_tensor_invariants._enabled = self._enable

    def __exit__(self, *exc: object) -> None:
        check_sparse_tensor_invariants._enabled = bool(self._before)
        self._before = None

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Wrap ``function`` so that the flag is set during each call."""

        @functools.wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            with type(self)(self._enable):
                return function(*args, **kwargs)

        return wrapper
