"""Read the events of a trace file as far as they are written: gzip or plain, finished, growing or truncated.

The parser needs neither the whole file nor one event per line: it calls the C scanner of ``json`` for one
event after the other and waits for more text if one is incomplete. Everything is bounded: the size of an
event, of the whole text, and of what is decompressed at once.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import stat
import zlib
from collections.abc import Iterator
from typing import Any, Protocol

from tenon_dashboard.collect import JsonObject, scan

CHUNK = 1 << 20
#: The largest number of characters of one event, or of another value.
LONGEST_VALUE = 4 << 20
#: The largest number of characters of one file; 1,000,000 ops take about 0.4 GB.
LONGEST_TEXT = 8 << 30
#: The text of a compressed file has at most ``FREE`` characters, and ``FACTOR`` for each byte of the file.
FREE, FACTOR = 1 << 26, 100
_BLANK = re.compile(r"[ \t\r\n,]*")


class BadTrace(ValueError):
    """A file that is not a valid trace; the message says where and why."""


class Sink(Protocol):
    """A consumer of events."""

    def add(self, event: object) -> None:
        """Add one event."""

    def take(self, block: str) -> bool:
        """Add lines of one event each, after a newline each; or add nothing and return False."""


class EventStream:
    """The events of one file; ``read`` passes on those written since the last call."""

    def __init__(self, path: str) -> None:
        # Links, and files that could block such as pipes, are refused.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        self._file = os.fdopen(handle, "rb", buffering=0)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            self._file.close()
            raise BadTrace("not a regular file")
        self._inflate: Any = None  # a decompressor of zlib, whose class has no public name
        self._packed: bool | None = None
        self._rest = b""
        self._decode = codecs.getincrementaldecoder("utf-8")()
        self._text = ""
        self._at = 0
        self._read = 0
        self._fault: tuple[int, str] | None = None
        self._part = "start"
        #: Whether every event so far was one line, so that many can be read at once.
        self._lines = True
        #: Whether the text was searched for the end of a line in vain: once, as each event would search it.
        self._searched = False
        #: The values other than events: ``schemaVersion``, ``distributedInfo``, ``deviceProperties``, ...
        self.header: JsonObject = {}

    @property
    def finished(self) -> bool:
        """Whether the closing bracket of the file has been read."""
        return self._part == "end"

    @property
    def position(self) -> int:
        """The number of bytes of the file that have been read."""
        return self._file.tell()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def read(self, sink: Sink) -> Iterator[int]:
        """Pass every complete event to ``sink``; yield the number of characters read now and then."""
        while self._part != "end":
            try:
                self._parse(sink)
            except RecursionError:
                raise BadTrace("values nested too deep") from None
            yield self._read
            if self._part == "end" or not self._more():
                break
        if self._part != "end":
            self._check_tail()

    def _parse(self, sink: Sink) -> None:
        while True:
            at = _BLANK.match(self._text, self._at).end()  # type: ignore[union-attr]
            self._at = at
            if at >= len(self._text):
                return
            mark = self._text[at]
            if self._part == "events":
                if mark == "]":
                    self._part, self._at = "keys", at + 1
                    continue
                if self._lines and not self._searched and self._whole_lines(sink):
                    continue
                value = self._value(at)
                if value is None:
                    return
                sink.add(value[0])
            elif self._part == "keys":
                if mark == "}":
                    self._part = "end"
                    return
                if not self._key(at):
                    return
            elif mark in "{[":
                self._part, self._at = ("keys" if mark == "{" else "events"), at + 1
            else:
                raise BadTrace(f"begins with {self._text[at : at + 20]!r}, not with a JSON object")

    def _whole_lines(self, sink: Sink) -> bool:
        """Pass on the events up to the last line that ends with a comma; return False if there is none."""
        end = self._text.rfind(",\n", self._at)
        if end < 0:
            self._searched = True
            return False
        lines = self._text[self._at : end]
        if not sink.take(f"\n{lines}\n"):
            try:
                events, stop = scan(f"[{lines}]", 0)
            except (StopIteration, ValueError):
                stop = -1
            if stop != len(lines) + 2:
                self._lines = (
                    False  # not one event per line, or an error, which parsing one by one will report
                )
                return False
            for event in events:
                sink.add(event)
        self._at = end + 1
        return True

    def _key(self, at: int) -> bool:
        key = self._value(at)
        if key is None:
            return False
        colon = _BLANK.match(self._text, self._at).end()  # type: ignore[union-attr]
        if colon >= len(self._text):
            self._at = at
            return False
        if type(key[0]) is not str or self._text[colon] != ":":
            raise BadTrace(f"no key at character {self._read - len(self._text) + at}")
        begin = _BLANK.match(self._text, colon + 1).end()  # type: ignore[union-attr]
        if key[0] == "traceEvents":
            if begin >= len(self._text):
                self._at = at
                return False
            if self._text[begin] != "[":
                raise BadTrace("traceEvents is not a list")
            self._part, self._at = "events", begin + 1
            return True
        value = self._value(begin)
        if value is None:
            self._at = at
            return False
        self.header[key[0]] = value[0]
        return True

    def _value(self, at: int) -> tuple[Any] | None:  # Any: a JSON value
        """Return the value at position ``at`` in a tuple, or None if its text is incomplete."""
        self._fault = None
        try:
            value, self._at = scan(self._text, at)
        except StopIteration as stop:
            self._fault = (stop.value, "no JSON value")
        except json.JSONDecodeError as error:
            begins = error.msg.startswith("Unterminated string")
            self._fault = (len(self._text) if begins else error.pos, error.msg)
        except ValueError as error:  # NaN, or an integer of thousands of digits
            raise BadTrace(str(error)) from None
        else:
            # A number at the end of the text may be incomplete.
            if self._at >= len(self._text) and type(value) in (int, float):
                self._at = at
                return None
            return (value,)
        if len(self._text) - at > LONGEST_VALUE:
            self._check_tail()
            raise BadTrace(f"a value longer than {LONGEST_VALUE} characters")
        return None

    def _check_tail(self) -> None:
        """Raise BadTrace unless the rest of the text may be the beginning of a value."""
        fault = self._fault
        if fault is not None and self._at < len(self._text) and len(self._text) - fault[0] > 16:
            where = self._read - len(self._text) + fault[0]
            raise BadTrace(f"{fault[1]} at character {where}: {self._text[fault[0] : fault[0] + 30]!r}")

    def _more(self) -> bool:
        """Read more text from the file; return False if there is none yet."""
        data = self._bytes()
        if not data:
            return False
        try:
            text = self._decode.decode(data)
        except UnicodeDecodeError as error:
            raise BadTrace(f"not UTF-8: {error.reason}") from None
        self._read += len(text)
        if self._read > LONGEST_TEXT:
            raise BadTrace(f"more than {LONGEST_TEXT >> 30} GiB of text")
        if self._packed and self._read > FREE + FACTOR * self.position:
            raise BadTrace(f"decompresses to more than {FACTOR} times its size: no trace does")
        self._text = self._text[self._at :] + text
        self._at = 0
        self._searched = False
        return True

    def _bytes(self) -> bytes:
        while True:
            if not self._rest:
                self._rest = self._file.read(CHUNK) or b""
                if not self._rest:
                    return b""
            if self._packed is None:
                self._packed = self._rest[:1] == b"\x1f"
            if not self._packed:
                data, self._rest = self._rest, b""
                return data
            data = self._inflated()
            if data:
                return data

    def _inflated(self) -> bytes:
        if self._inflate is None or self._inflate.eof:
            self._inflate = zlib.decompressobj(31)  # the next member: a writer may end one at each flush
        try:
            data: bytes = self._inflate.decompress(self._rest, CHUNK)
        except zlib.error as error:
            raise BadTrace(f"damaged gzip: {error}") from None
        self._rest = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
        return data
