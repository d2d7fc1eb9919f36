"""Send and receive between two ranks: a description of the array first, then its bytes in pieces.

The receiver compares the description with what it expects, so that mismatched shapes or dtypes raise. It
takes the bytes of such a message too, which the next receive would get otherwise.
"""

from __future__ import annotations

import contextlib

import numpy as np

from tenon.extend import engine
from tenon_mpi.library import MpiComm, MpiRequest, load_mpi
from tenon_mpi.messages import pieces

HEADER_BYTES = 256
"""Of a message that precedes the data: 8 bytes with its size, and the description."""


class Transfer(engine.Work):
    """A nonblocking send or receive of ``array``, which ``requests`` transfer after the header.

    ``clock`` counts how long it waits.
    """

    __slots__ = ("_clock", "_header", "_requests")

    def __init__(
        self, clock: engine.Clock, array: np.ndarray, header: np.ndarray, requests: list[MpiRequest]
    ) -> None:
        super().__init__(array)
        self._clock, self._header, self._requests = clock, header, requests

    def wait(self, timeout: object = None) -> np.ndarray:
        """Block until the array may be used."""
        if self._requests:
            with self._clock.waiting():
                for request in self._requests:
                    request.Wait()
        self._requests.clear()
        return self._result

    def is_completed(self) -> bool:
        """Whether ``wait`` would return at once."""
        return all([request.Test() for request in self._requests])


class Reception(Transfer):
    """A nonblocking receive from rank ``source``, whose description has to be ``text``."""

    __slots__ = ("_comm", "_problem", "_source", "_tag", "_text")

    def __init__(
        self, clock: engine.Clock, array: np.ndarray, header: np.ndarray, requests: list[MpiRequest],
        comm: MpiComm, text: str, source: int, tag: int,
    ) -> None:  # fmt: skip
        super().__init__(clock, array, header, requests)
        self._comm, self._text, self._source, self._tag = comm, text, source, tag
        self._problem: str | None = None

    def wait(self, timeout: object = None) -> np.ndarray:
        """Block until the array may be used; CollectiveMismatchError if the sender's description differs."""
        if self._requests:
            with self._clock.waiting():
                self._requests[0].Wait()
            sent = _described(self._header)
            if sent != _described(_header(self._text, 0)):
                self._problem = sent
                self._discard(int(self._header[:8].view(np.int64)[0]))
        if self._problem is not None:
            engine.check_message(self._text, self._problem, self._source)
        return super().wait()

    def _discard(self, size: int) -> None:
        """Take the ``size`` bytes of a message that is not the expected one."""
        sent = list(pieces(size, 1))
        posted = self._requests[1:]
        for request in posted[len(sent) :]:
            request.Cancel()
        for request in posted:
            with contextlib.suppress(load_mpi().Exception):  # It was longer than the array.
                request.Wait()
        for start, stop in sent[len(posted) :]:
            self._comm.Recv(np.empty(stop - start, np.uint8), self._source, 2 * self._tag + 1)
        self._requests.clear()


def send(clock: engine.Clock, comm: MpiComm, source: np.ndarray, text: str, to: int, tag: int) -> Transfer:
    """Start a nonblocking send (``MPI_Isend``) of flat ``source`` whose wait ``clock`` counts."""
    data = source.view(np.uint8)
    header = _header(text, data.size)
    requests = [comm.Isend(header, to, 2 * tag)]
    requests += [comm.Isend(data[start:stop], to, 2 * tag + 1) for start, stop in pieces(data.size, 1)]
    return Transfer(clock, source, header, requests)


def receive(
    clock: engine.Clock, comm: MpiComm, target: np.ndarray, text: str, source: int, tag: int
) -> Transfer:
    """Start a nonblocking receive (``MPI_Irecv``) into flat ``target``, as ``send`` does."""
    header = np.zeros(HEADER_BYTES, np.uint8)
    data = target.view(np.uint8)
    requests = [comm.Irecv(header, source, 2 * tag)]
    requests += [comm.Irecv(data[start:stop], source, 2 * tag + 1) for start, stop in pieces(data.size, 1)]
    return Reception(clock, target, header, requests, comm, text, source, tag)


def _header(text: str, size: int) -> np.ndarray:
    header = np.zeros(HEADER_BYTES, np.uint8)
    header[:8].view(np.int64)[0] = size
    described = text.encode()[: HEADER_BYTES - 8]
    header[8 : 8 + len(described)] = np.frombuffer(described, np.uint8)
    return header


def _described(header: np.ndarray) -> str:
    return header[8:].tobytes().rstrip(b"\0").decode(errors="replace")


__all__ = ["Transfer", "receive", "send"]
