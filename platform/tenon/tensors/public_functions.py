"""Look up public functions of ``tenon`` for methods that forward to them: ``x.stft()`` is ``tenon.stft(x)``.

Those functions are in a higher layer, which this package must not import: ``tenon/__init__.py`` calls
``register_lookup``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

#: Returns a function or module of ``tenon`` by name; each has its own type.
Find: TypeAlias = Callable[[str], Any]

_find: Find | None = None


def register_lookup(find: Find) -> None:
    """Register the function that returns a public function or module of ``tenon`` by name."""
    global _find
    _find = find


def public(name: str) -> Any:  # a function or module
    """Return ``tenon.<name>``."""
    assert _find is not None  # import tenon has set it
    return _find(name)
