"""PyTorch's ``compatibility``: a decorator that marks functions as stable, which has no effect here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def compatibility(is_backward_compatible: bool) -> Callable[[T], T]:
    """Return a decorator without effect."""
    return lambda decorated: decorated
