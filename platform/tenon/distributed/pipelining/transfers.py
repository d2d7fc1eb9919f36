"""Send tensors of unknown shapes from rank to rank: activations to the next stage, gradients back.

A message announces the tensors (shape, dtype, whether they require grad), and their values follow, a message
for each. So stages need no example inputs, microbatches may differ in shape, and ``None`` can be sent in
place of a gradient. The announcement has a fixed size; a longer one is followed by the rest of it.

Messages of one kind between two ranks arrive in the order of the sends: announcements and values have a tag
each, and ``Receiver`` matches them in that order. Names say which stage, microbatch and step a message
belongs to, and receivers compare them.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tenon import dtypes
from tenon.device import Device
from tenon.distributed.communication import staging
from tenon.distributed.communication.calls import Work
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.communication.rooted import LARGEST_TAG
from tenon.errors import CommunicatorError
from tenon.tensors.creation.factories import empty
from tenon.tensors.tensor import Tensor

HEADER_BYTES = 512
ANNOUNCEMENT, VALUES = LARGEST_TAG - 2, LARGEST_TAG - 1
"""The tags of the two kinds of messages."""


@dataclass(frozen=True, slots=True)
class Announced:
    """A tensor that is about to be received."""

    shape: tuple[int, ...]
    dtype: str
    requires_grad: bool


def _encode(tensors: Sequence[Tensor | None]) -> bytes:
    rows = [None if t is None else [list(t.shape), _name(t), t.requires_grad] for t in tensors]
    return json.dumps(rows, separators=(",", ":")).encode()


def _name(tensor: Tensor) -> str:
    return str(tensor.dtype).rpartition(".")[2]


def _decode(text: bytes) -> list[Announced | None]:
    return [None if row is None else Announced(tuple(row[0]), row[1], row[2]) for row in json.loads(text)]


class Sender:
    """Sends to the ranks of ``communicator``; nothing waits until ``finish``."""

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator
        self._works: list[Work] = []

    def send(self, tensors: Sequence[Tensor | None], to: int, name: str) -> None:
        """Start to send ``tensors``, which must not be modified until ``finish``."""
        staging.refuse_recording("pipelining")
        text = _encode(tensors)
        parts = [text[: HEADER_BYTES - 8], text[HEADER_BYTES - 8 :]]
        header = np.zeros(HEADER_BYTES, np.uint8)
        header[:8].view(np.int64)[0] = len(text)
        header[8 : 8 + len(parts[0])] = np.frombuffer(parts[0], np.uint8)
        self._start(header, to, ANNOUNCEMENT, f"announcement of {name}")
        if parts[1]:
            self._start(np.frombuffer(parts[1], np.uint8), to, VALUES, f"rest of {name}")
        for index, tensor in enumerate(tensors):
            if tensor is not None and tensor.numel():
                self._start(staging.to_host(tensor), to, VALUES, f"{name}, tensor {index}")

    def _start(self, array: np.ndarray, to: int, tag: int, name: str) -> None:
        self._works.append(self._communicator.send(array, to, tag, name=name))

    def progress(self) -> None:
        """Let go of what has been sent."""
        self._works = [work for work in self._works if not work.is_completed()]

    def finish(self) -> None:
        """Wait until everything has been sent."""
        works, self._works = self._works, []
        for work in works:
            work.wait()


@dataclass(slots=True)
class Reception:
    """Tensors that another rank sends; ``Receiver`` fills it."""

    source: int
    name: str
    device: Device
    header: np.ndarray
    work: Work
    announced: list[Announced | None] | None = None
    tensors: list[Tensor | None] = field(default_factory=list)
    works: list[tuple[Work, Tensor]] = field(default_factory=list)


class Receiver:
    """Receives what the ``Sender``s of other ranks send, in the order of their sends."""

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator
        self._announcements: dict[int, deque[Reception]] = {}

    def post(self, source: int, name: str, device: Device) -> Reception:
        """Expect tensors from rank ``source``, after those that were posted before."""
        staging.refuse_recording("pipelining")
        header = np.zeros(HEADER_BYTES, np.uint8)
        work = self._communicator.receive(header, source, ANNOUNCEMENT, name=f"announcement of {name}")
        reception = Reception(source, name, device, header, work)
        self._announcements.setdefault(source, deque()).append(reception)
        return reception

    def progress(self) -> None:
        """Make room for the tensors that have been announced meanwhile, so that they can arrive."""
        for waiting in self._announcements.values():
            while waiting and waiting[0].work.is_completed():
                self._open(waiting.popleft())

    def wait(self, reception: Reception) -> list[Tensor | None]:
        """The tensors of ``reception``, once they are there."""
        waiting = self._announcements[reception.source]
        while reception.announced is None:
            self._open(waiting.popleft())
        for work, tensor in reception.works:
            values = work.wait()
            if values is not staging.to_host(tensor):
                staging.write(tensor, values)
        reception.works.clear()
        return reception.tensors

    def _open(self, reception: Reception) -> None:
        """Wait for the announcement, and post the receives of the tensors."""
        reception.work.wait()
        size = int(reception.header[:8].view(np.int64)[0])
        text = reception.header[8 : 8 + size].tobytes()
        if len(text) < size:
            rest = np.empty(size - len(text), np.uint8)
            name = f"rest of {reception.name}"
            self._communicator.receive(rest, reception.source, VALUES, name=name).wait()
            text += rest.tobytes()
        reception.announced = _decode(text)
        for index, each in enumerate(reception.announced):
            reception.tensors.append(None if each is None else self._begin(reception, index, each))

    def _begin(self, reception: Reception, index: int, each: Announced) -> Tensor:
        kind = getattr(dtypes, each.dtype, None)
        if not isinstance(kind, dtypes.dtype):
            raise CommunicatorError(f"rank {reception.source} announced a tensor of dtype {each.dtype!r}.")
        tensor = empty(*each.shape, dtype=kind, device=reception.device)
        if tensor.numel():
            host = staging.to_host(tensor)
            name = f"{reception.name}, tensor {index}"
            work = self._communicator.receive(host, reception.source, VALUES, name=name)
            reception.works.append((work, tensor))
        return tensor
