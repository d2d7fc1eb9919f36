"""Send and receive between two ranks: a description of the array first, then its bytes in pieces.

The receiver compares the description with what it expects, so that mismatched shapes or dtypes raise.
"""

from __future__ import annotations

import numpy as np

from tenon.extend import engine
from tenon_mpi.library import MpiComm, MpiRequest
from tenon_mpi.messages import pieces

HEADER_BYTES = 256


class Transfer(engine.Work):
    """A nonblocking send or receive; ``other`` is the sender's rank for a receive, None for a send."""

    __slots__ = ("_checked", "_header", "_other", "_requests", "_text")

    def __init__(
        self, array: np.ndarray, text: str, header: np.ndarray, requests: list[MpiRequest], other: int | None
    ) -> None:
        super().__init__(array)
        self._text, self._header, self._requests, self._other = text, header, requests, other
        self._checked = other is None

    def wait(self, timeout: object = None) -> np.ndarray:
        """Block until the array may be used; CollectiveMismatchError if the sender's description differs."""
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
        sent = self._header.tobytes().rstrip(b"\0").decode()
        if sent != self._text:
            for request in self._requests[1:]:
                request.Cancel()
            self._requests.clear()
            engine.check_message(self._text, sent, self._other)


def send(comm: MpiComm, source: np.ndarray, text: str, to: int, tag: int) -> Transfer:
    """Start a nonblocking send (``MPI_Isend``) of flat ``source``."""
    header = _header(text)
    data = source.view(np.uint8)
    requests = [comm.Isend(header, to, 2 * tag)]
    requests += [comm.Isend(data[start:stop], to, 2 * tag + 1) for start, stop in pieces(data.size, 1)]
    return Transfer(source, text, header, requests, None)


def receive(comm: MpiComm, target: np.ndarray, text: str, source: int, tag: int) -> Transfer:
    """Start a nonblocking receive (``MPI_Irecv``) into flat ``target``."""
    header = np.zeros(HEADER_BYTES, np.uint8)
    data = target.view(np.uint8)
    requests = [comm.Irecv(header, source, 2 * tag)]
    requests += [comm.Irecv(data[start:stop], source, 2 * tag + 1) for start, stop in pieces(data.size, 1)]
    return Transfer(target, text, header, requests, source)


def _header(text: str) -> np.ndarray:
    return np.frombuffer(text.encode().ljust(HEADER_BYTES, b"\0")[:HEADER_BYTES], np.uint8)


__all__ = ["Transfer", "receive", "send"]
