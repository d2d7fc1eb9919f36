"""Saying in which module an error happened, at no cost while none happens.

``Module.__call__`` runs ``forward`` in a ``try`` block, which is free in Python 3.11. On the way out
each module prepends its part of the path, found among its own ``named_modules()``; nobody has to
know in advance which call is the outermost. The exception carries the path as
``tenon_module_path`` and shows it as one note.
"""

from __future__ import annotations

import contextlib
import weakref
from typing import Any


def place(module: Any, error: BaseException) -> None:
    """Tell ``error`` that it passes through ``module``'s call."""
    known = error.__dict__
    inner = known.get("_tenon_inner")
    if inner is None:
        path, name, caller = "", type(module).__name__, module
    else:
        path, name, reference = inner
        caller = reference()
        if caller is module:
            return
        step = _path_below(module, caller)
        if step is None:
            path = f"<{type(caller).__name__}>" + (f".{path}" if path else "")
        else:
            path = f"{step}.{path}" if path else step
    # Exceptions may refuse new attributes (frozen dataclasses do); then the error goes out as it is.
    with contextlib.suppress(AttributeError, TypeError):
        error._tenon_inner = (path, name, weakref.ref(module))  # type: ignore[attr-defined]
        error.tenon_module_path = path  # type: ignore[attr-defined]
        note = f"in module {path} ({name})" if path else f"in module {name}"
        notes = getattr(error, "__notes__", [])
        previous = known.get("_tenon_note")
        if previous in notes:
            notes[notes.index(previous)] = note
        else:
            error.add_note(note)
        error._tenon_note = note  # type: ignore[attr-defined]


def _path_below(module: Any, inner: Any) -> str | None:
    if inner is None:
        return None
    for path, each in module.named_modules():
        if each is inner:
            return str(path)
    return None
