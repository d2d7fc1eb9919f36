"""Messages between two ranks: what is sent first, then the array in pieces."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenon.extend import engine
from tenon_mpi.messages import pieces

TEXT_BYTES = 256
Array = np.ndarray[Any, Any]


class Letter(engine.Work):
    """A send or a receive under way."""

    __slots__ = ("_checked", "_other", "_requests", "_text", "_words")

    def __init__(self, array: Array, text: str, words: Array, requests: list[Any], other: int | None) -> None:
        super().__init__(array)
        self._text, self._words, self._requests, self._other = text, words, requests, other
        self._checked = other is None

    def wait(self, timeout: Any = None) -> Array:
        """Block until the array may be used again; raise where the sender meant another one."""
        if self._requests:
            self._requests[0].Wait()
            self._check()
            for request in self._requests[1:]:
                request.Wait()
            self._requests.clear()
        return self._result

    def is_completed(self) -> bool:
        """Whether ``wait`` would return at once."""
        return all([request.Test() for request in self._requests])

    def _check(self) -> None:
        if self._checked or self._other is None:
            return
        self._checked = True
        sent = self._words.tobytes().rstrip(b"\0").decode()
        if sent != self._text:
            for request in self._requests[1:]:
                request.Cancel()
            self._requests.clear()
            engine.check_message(self._text, sent, self._other)


def send(comm: Any, source: Array, text: str, to: int, tag: int) -> Letter:
    """Start to send."""
    words = _words(text)
    data = source.view(np.uint8)
    requests = [comm.Isend(words, to, 2 * tag)]
    requests += [comm.Isend(data[start:stop], to, 2 * tag + 1) for start, stop in pieces(data.size, 1)]
    return Letter(source, text, words, requests, None)


def receive(comm: Any, target: Array, text: str, source: int, tag: int) -> Letter:
    """Start to receive."""
    words = np.zeros(TEXT_BYTES, np.uint8)
    data = target.view(np.uint8)
    requests = [comm.Irecv(words, source, 2 * tag)]
    requests += [comm.Irecv(data[start:stop], source, 2 * tag + 1) for start, stop in pieces(data.size, 1)]
    return Letter(target, text, words, requests, source)


def _words(text: str) -> Array:
    return np.frombuffer(text.encode().ljust(TEXT_BYTES, b"\0")[:TEXT_BYTES], np.uint8)


__all__ = ["Letter", "receive", "send"]
