"""torch's ``torch.backends.opt_einsum``: in which order ``einsum`` contracts three operands and more.

With the package ``opt_einsum`` installed, ``enabled`` (True at first) lets it choose the order, looking as
``strategy`` says: "auto", "greedy" or "optimal". Without it operands are contracted from left to right, and
both switches stay as they are. Either may be assigned to this module, or set for a block by ``flags``.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import sys
import types
from collections.abc import Iterator
from typing import Any

from tenon.errors import ArgumentError

__all__ = ["enabled", "flags", "get_opt_einsum", "is_available", "set_flags", "strategy"]

_STRATEGIES = ("auto", "greedy", "optimal")
_LEFT_TO_RIGHT = "einsum contracts from left to right. Install it (`pip install opt-einsum`)"


@functools.cache
def is_available() -> bool:
    """Whether the package ``opt_einsum`` is installed."""
    return importlib.util.find_spec("opt_einsum") is not None


def get_opt_einsum() -> Any:
    """The package, or None where it is not installed."""
    return importlib.import_module("opt_einsum") if is_available() else None


enabled: bool = is_available()
strategy: str | None = "auto" if enabled else None


def set_flags(_enabled: bool | None = None, _strategy: str | None = None) -> tuple[bool, str | None]:
    """Set the switches that are given; what both were before."""
    before = (enabled, strategy)
    module: Any = sys.modules[__name__]
    if _enabled is not None:
        module.enabled = _enabled
    if _strategy is not None:
        module.strategy = _strategy
    return before


@contextlib.contextmanager
def flags(enabled: bool | None = None, strategy: str | None = None) -> Iterator[None]:
    """Set the switches inside the block."""
    before = set_flags(enabled, strategy)
    try:
        yield
    finally:
        vars(sys.modules[__name__]).update(zip(("enabled", "strategy"), before, strict=True))


def path(equation: str, operands: tuple[Any, ...]) -> list[tuple[int, ...]] | None:
    """Which operands to contract one after the other, results going to the end; None: from left to right."""
    if not enabled or len(operands) < 3:
        return None
    shapes = (tuple(x.shape) for x in operands)
    found = get_opt_einsum().contract_path(equation, *shapes, shapes=True, optimize=strategy)[0]
    return [tuple(step) for step in found]


def _check(name: str, value: Any) -> None:
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


class _Switches(types.ModuleType):
    """A module that looks at what is assigned to its switches."""

    def __setattr__(self, name: str, value: Any) -> None:
        _check(name, value)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Switches
