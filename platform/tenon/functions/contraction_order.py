"""``torch.backends.opt_einsum``: the order in which ``einsum`` contracts three or more operands.

If the package ``opt_einsum`` is installed and ``enabled`` (the default), it finds the order by ``strategy``:
"auto", "greedy" or "optimal". Otherwise operands are contracted from left to right. Both settings can be
assigned to this module, or set for a ``with`` block by ``flags``.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import sys
import types
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tenon.errors import ArgumentError

if TYPE_CHECKING:
    from types import ModuleType

    from tenon.tensors.tensor import Tensor

__all__ = ["enabled", "flags", "get_opt_einsum", "is_available", "set_flags", "strategy"]

_STRATEGIES = ("auto", "greedy", "optimal")
_LEFT_TO_RIGHT = "einsum contracts from left to right. Install it (`pip install opt-einsum`)"


@functools.cache
def is_available() -> bool:
    """Return whether the package ``opt_einsum`` is installed."""
    return importlib.util.find_spec("opt_einsum") is not None


def get_opt_einsum() -> ModuleType | None:
    """Return the package ``opt_einsum``, or None if it is not installed."""
    return importlib.import_module("opt_einsum") if is_available() else None


enabled: bool = is_available()
strategy: str | None = "auto" if enabled else None


def set_flags(_enabled: bool | None = None, _strategy: str | None = None) -> tuple[bool, str | None]:
    """Set the settings that are not None; return the previous ones."""
    before = (enabled, strategy)
    module: Any = sys.modules[__name__]  # assigned through the class below, which checks the values
    if _enabled is not None:
        module.enabled = _enabled
    if _strategy is not None:
        module.strategy = _strategy
    return before


@contextlib.contextmanager
def flags(enabled: bool | None = None, strategy: str | None = None) -> Iterator[None]:
    """Set the settings that are not None inside the ``with`` block; restore the previous ones after it."""
    before = set_flags(enabled, strategy)
    try:
        yield
    finally:
        vars(sys.modules[__name__]).update(zip(("enabled", "strategy"), before, strict=True))


def path(equation: str, operands: Sequence[Tensor]) -> list[tuple[int, ...]] | None:
    """Return the indices of the operands that each step contracts; its result is appended to the operands.
    None: contract from left to right."""
    package = get_opt_einsum() if enabled and len(operands) >= 3 else None
    if package is None:
        return None
    shapes = (tuple(x.shape) for x in operands)
    steps = package.contract_path(equation, *shapes, shapes=True, optimize=strategy)[0]
    return [tuple(step) for step in steps]


def _check(name: str, value: object) -> None:
    """Raise ArgumentError if the setting ``name`` cannot have this value."""
    if name == "enabled" and value and not is_available():
        raise ArgumentError(
            f"opt_einsum is not available, so enabled={value} changes nothing: {_LEFT_TO_RIGHT}."
        )
    if name == "strategy":
        if not is_available():
            raise ArgumentError(
                f"opt_einsum is not available, so strategy={value!r} changes nothing: {_LEFT_TO_RIGHT}."
            )
        if not enabled:
            raise ArgumentError(
                f"opt_einsum is not enabled, so strategy={value!r} changes nothing. Set enabled=True first."
            )
        if value not in _STRATEGIES:
            raise ArgumentError(f"`strategy` must be one of {list(_STRATEGIES)}, not {value!r}.")


class _Settings(types.ModuleType):
    """A module that checks the values assigned to its settings."""

    def __setattr__(self, name: str, value: object) -> None:
        _check(name, value)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Settings
