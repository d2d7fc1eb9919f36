"""``with_handler``: give a function an ``except`` clause that costs nothing until an exception passes it.

CPython enters a ``try`` without executing an instruction: a table next to its instructions says where
to continue if one of them raises. So a handler can be added to a compiled function: its instructions are
appended, and the table directs exceptions of the function's own instructions to them. A decorator with a
``try`` would cost every call some 600 instructions, 6 % of an addition of small tensors.

The handler's instructions are those that the running Python compiles for ``_template``. Only the two tables
are encoded here, as ``Objects/exception_handling_notes.txt`` and ``Objects/locations.md`` of CPython 3.11 and
later say.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from functools import cache
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from types import CodeType
from typing import NamedTuple

#: Whether the format of the tables and instructions is known. Later versions of Python may change it: there
#: functions get no handlers, and an argument of a wrong type raises whatever error the function runs into.
SUPPORTED = sys.implementation.name == "cpython" and sys.version_info < (3, 15)
#: Opcodes; -1 where a Python that is not supported has none of the name.
RESUME, _LOAD_GLOBAL, _PUSH_EXC_INFO = (
    dis.opmap.get(name, -1) for name in ("RESUME", "LOAD_GLOBAL", "PUSH_EXC_INFO")
)
#: Flags of functions that are left and entered again.
SUSPENDS = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR
#: The kind of an entry of the line table that has no columns, and how many instructions one may be for.
_LINE, _LONGEST = 13, 8


class Entry(NamedTuple):
    """Where to continue after an exception: offsets in bytes, of instructions ``start`` to before ``end``."""

    start: int
    end: int
    target: int
    #: How many values stay on the stack, times two, plus 1 if the offset of the failed instruction is pushed.
    depth: int


def _template() -> object:
    try:
        body  # type: ignore[name-defined]  # noqa: B018, F821 - anything that may raise
        return None
    except:
        if handler():  # type: ignore[name-defined]  # noqa: F821
            return retry()  # type: ignore[name-defined]  # noqa: F821
        raise


def entries(code: CodeType) -> list[Entry]:
    """Decode the exception table of ``code``."""
    numbers = _numbers(code.co_exceptiontable)
    return [
        Entry(2 * start, 2 * (start + length), 2 * target, depth)
        for start, length, target, depth in zip(numbers, numbers, numbers, numbers, strict=True)
    ]


def _numbers(table: bytes) -> Iterator[int]:
    value = 0
    for byte in table:
        value = value << 6 | byte & 63
        if not byte & 64:
            yield value
            value = 0


def encoded(table: list[Entry]) -> bytes:
    """Encode an exception table."""
    return b"".join(
        [
            _first(start // 2) + _number((end - start) // 2) + _number(target // 2) + _number(depth)
            for start, end, target, depth in table
        ]
    )


@cache
def _number(number: int) -> bytes:
    """Encode an integer by six bits a byte, the highest first; bit 6 says that more bytes follow."""
    result = [number & 63]
    while number := number >> 6:
        result.append(number & 63 | 64)
    return bytes(reversed(result))


@cache
def _first(number: int) -> bytes:
    """Encode the first integer of an entry, which bit 7 of its first byte marks."""
    result = _number(number)
    return bytes((result[0] | 128, *result[1:]))


def _all_to(target: int, own: list[Entry], start: int, end: int) -> list[Entry]:
    """``own``, plus entries that lead to ``target`` for the parts of ``start`` to ``end`` not covered by
    it."""
    result = []
    for entry in own:
        if start < entry.start:
            result.append(Entry(start, entry.start, target, 0))
        result.append(entry)
        start = entry.end
    return [*result, Entry(start, end, target, 0)]


def _handler() -> tuple[bytes, tuple[int, ...], list[Entry]]:
    """The template's handler: its instructions, the offsets at which they load ``handler`` and ``retry``, its
    exception table."""
    code = _template.__code__
    operations = code.co_code[::2]
    start = offset = 2 * operations.index(_PUSH_EXC_INFO)
    loads = []
    for name in ("handler", "retry"):
        offset = 2 * operations.index(_LOAD_GLOBAL, offset // 2)
        assert code.co_code[offset + 1] == code.co_names.index(name) << 1 | 1, dis.code_info(code)
        loads.append(offset - start)
        offset += 2
    inside = [Entry(e.start - start, e.end - start, e.target - start, e.depth) for e in entries(code)]
    return code.co_code[start:], tuple(loads), [e for e in inside if e.start >= 0]


_INSTRUCTIONS, _LOADS, _INSIDE = _handler() if SUPPORTED else (b"", (), [])


def with_handler(code: CodeType, name: str, retry: str) -> CodeType | None:
    """Return a copy of ``code`` in which an exception that would leave it calls the global ``name()`` first.

    If ``name()`` returns True, the code returns the result of the global ``retry()`` instead; if False, the
    exception propagates. None for code to which no handler can be added: of generators, and of functions with
    more than 126 names.
    """
    index = len(code.co_names) << 1 | 1
    if not SUPPORTED or index + 2 > 255 or code.co_flags & SUSPENDS:
        return None
    own = code.co_code
    end, start = len(own), 2 * own[::2].index(RESUME) + 2
    line = code.co_firstlineno
    for _, _, each in code.co_lines():
        line = each or line
    return code.replace(
        co_code=own + _instructions(index),
        co_names=(*code.co_names, name, retry),
        co_exceptiontable=encoded(_all_to(end, entries(code), start, end)) + _inside(end),
        co_linetable=code.co_linetable + _lines(code.co_firstlineno - line),
        co_stacksize=max(code.co_stacksize, _template.__code__.co_stacksize),
    )


@cache
def _instructions(index: int) -> bytes:
    """The handler's instructions for a function whose names ``index`` and ``index + 2`` (as operands of
    ``LOAD_GLOBAL``) are those of the handler and of the function that repeats the call."""
    handler = bytearray(_INSTRUCTIONS)
    for position, load in enumerate(_LOADS):
        handler[load + 1] = index + 2 * position
    return bytes(handler)


@cache
def _inside(end: int) -> bytes:
    """The handler's own exception table, encoded, where its instructions begin at ``end``."""
    return encoded([Entry(e.start + end, e.end + end, e.target + end, e.depth) for e in _INSIDE])


@cache
def same_line(count: int) -> bytes:
    """Line-table entries for ``count`` instructions on the line of those before."""
    sizes = [_LONGEST] * (count // _LONGEST) + [count % _LONGEST] * (count % _LONGEST > 0)
    return b"".join([bytes((128 | _LINE << 3 | size - 1, 0)) for size in sizes])


@cache
def _lines(change: int) -> bytes:
    """Line-table entries that place the handler on one line, ``change`` lines after the function's last
    one."""
    number = change << 1 if change >= 0 else -change << 1 | 1
    result = bytearray()
    for begin in range(0, len(_INSTRUCTIONS) // 2, _LONGEST):
        length = min(_LONGEST, len(_INSTRUCTIONS) // 2 - begin)
        result.append(128 | _LINE << 3 | length - 1)
        while number > 63:
            result.append(number & 63 | 64)
            number >>= 6
        result.append(number)
        number = 0
    return bytes(result)
