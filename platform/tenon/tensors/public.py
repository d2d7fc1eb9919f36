"""Public functions that are built on tensors, for methods that call them: ``x.stft()`` is ``tenon.stft(x)``.

They stand above this package, so nothing here imports them: ``tenon/__init__.py`` says how they are found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_find: Callable[[str], Any] | None = None


def found_by(find: Callable[[str], Any]) -> None:
    """Set what returns a public function, or module, of ``tenon`` by its name."""
    global _find
    _find = find


def public(name: str) -> Any:
    """``tenon.<name>``."""
    assert _find is not None  # import tenon has set it
    return _find(name)
