"""Error context: the path of the module that raised, at no cost without errors.

``Module.__call__`` runs ``forward`` in a ``try`` block, which is free in Python 3.11. While the exception
propagates, each module prepends its part of the path, looked up in its own ``named_modules()``, so that the
outermost call need not be known in advance. The exception carries the path as ``tenon_module_path`` and
displays it: a TenonError at the end of its message, any other as a note.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from tenon.errors import TenonError

if TYPE_CHECKING:
    from tenon.nn.module import Module


class _PathSoFar(NamedTuple):
    """Record, on an exception, of the modules it has passed; plain values, so that it stays picklable."""

    path: str  # from the module passed last to the innermost one
    innermost: str  # class name
    last: int  # id of the module passed last
    last_name: str
    note: str


def add_module_path(module: Module, error: BaseException) -> None:
    """Record on ``error`` that it propagates through the call of ``module``."""
    passed: _PathSoFar | None = error.__dict__.get("_tenon_passed")
    name = type(module).__name__
    if passed is None:
        path, innermost = "", name
    elif passed.last == id(module):
        return
    else:
        step = _path_below(module, passed.last) or f"<{passed.last_name}>"
        path, innermost = f"{step}.{passed.path}" if passed.path else step, passed.innermost
    note = f"in module {path} ({innermost})" if path else f"in module {innermost}"
    # Exceptions may reject new attributes (frozen dataclasses do): they propagate unchanged.
    with contextlib.suppress(AttributeError, TypeError):
        error._tenon_passed = _PathSoFar(path, innermost, id(module), name, note)  # type: ignore[attr-defined]
        error.tenon_module_path = path  # type: ignore[attr-defined]
        if isinstance(error, TenonError):
            return  # its text shows the path
        notes = getattr(error, "__notes__", [])
        if passed is not None and passed.note in notes:
            notes[notes.index(passed.note)] = note
        else:
            error.add_note(note)


def _path_below(module: Module, inner: int) -> str | None:
    for path, each in module.named_modules():
        if id(each) == inner:
            return str(path)
    return None
