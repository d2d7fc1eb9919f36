"""Compile generated source to functions whose source tracebacks and ``inspect`` can find."""

from __future__ import annotations

import itertools
import linecache
import sys
import traceback
import weakref
from types import FunctionType, TracebackType
from typing import Any

from tenon.fx.arguments import Named
from tenon.nn.module import Module

_numbers = itertools.count()
#: The file names of functions whose owners are gone. The next function removes them: an owner may be freed
#: while ``linecache`` goes over its entries, which would raise if one vanished.
_freed: list[str] = []
#: The prefix of the file names of generated functions.
PREFIX = "<eval_with_key>"
_CALL = Module.__call__.__code__


def make_function(
    source: str,
    names: Named,
    fields: Named,
    owner: object,  # of any types
) -> FunctionType:
    """Return the function ``forward`` of ``source``; the source can be looked up while ``owner`` is there.

    ``fields`` has the name, file and line of the function that was traced, which the file name mentions.
    """
    filename = f"{PREFIX}.{next(_numbers)}"
    if "co_filename" in fields:
        filename += f" from {fields['co_filename']}:{fields['co_firstlineno']} in {fields['co_name']}"
    while _freed:
        linecache.cache.pop(_freed.pop(), None)
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    weakref.finalize(owner, _freed.append, filename).atexit = False
    space = dict(names)
    exec(compile(source, filename, "exec"), space)
    function: FunctionType = space["forward"]
    return function


def failing_line(trace: TracebackType | None) -> int | None:
    """Return the line of generated code that an exception comes from; None if a module that it calls raised
    it.

    Frames of tenon's functions do not count: there PyTorch has none.
    """
    line: int | None = None
    package = str(Module.__module__).partition(".")[0]
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code.co_filename.startswith(PREFIX):
            line = trace.tb_lineno
        elif line is not None and (frame.f_code is _CALL or _is_foreign(frame.f_globals, package)):
            return None
        trace = trace.tb_next
    return line


def _is_foreign(names: dict[str, Any], package: str) -> bool:  # of any type
    return str(names.get("__name__", "")).partition(".")[0] != package


def print_failure(error: Exception, source: str, line: int) -> None:
    """Print the traceback of ``error``, and the lines of generated code around the one that failed."""
    lines = source.split("\n")
    parts = [
        traceback.format_exc().strip(),
        f"Call using an FX-traced Module, line {line} of the traced Module's generated forward function:",
        "\n".join(lines[max(line - 3, 0) : line]),
        f"~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~ <--- HERE\n{lines[line] if line < len(lines) else ''}",
    ]
    print("\n\n".join(parts), file=sys.stderr)
