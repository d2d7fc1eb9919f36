"""Batches for ranks that compute the same samples: one of them reads and sends.

Data sets may draw random numbers, for augmentation, of which each rank has its own; and so each sample is
read once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from tenon import dtypes
from tenon.distributed.checkpoint import random_states
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.communication.objects import decode, encode
from tenon.engine.types import Nested
from tenon.tensors.creation import factories
from tenon.tensors.tensor import Tensor

#: A batch without its tensors: ``[kind, content]``, for a tensor its number, shape and dtype.
Outline: TypeAlias = list[Any]


def send_batch(team: Communicator, batch: Nested) -> Nested:
    """The ``batch`` of the first rank of ``team``, on all its ranks; the others pass None. Collective.

    Containers are dicts, and lists for all sequences; tensors arrive on the CPU.
    """
    if team.size == 1:
        return batch
    tensors: list[Tensor] = []
    payload = encode(_outline(batch, tensors)) if team.rank == 0 else b""
    outline = decode(team.all_gather_bytes(payload, name="batch")[0])
    return _receive(team, outline, tensors)


@contextlib.contextmanager
def restored_generators(communicator: Communicator) -> Iterator[None]:
    """Leave the random generators as they were, whatever a data set draws. Collective."""
    states = random_states.capture(communicator)
    try:
        yield
    finally:
        random_states.restore(states, communicator)


def _outline(batch: Nested, tensors: list[Tensor]) -> Outline:
    """``batch`` without its tensors, which are appended to ``tensors``."""
    if isinstance(batch, Tensor):
        tensors.append(batch)
        return ["tensor", [len(tensors) - 1, list(batch.shape), batch.dtype.name]]
    if isinstance(batch, dict):
        return ["dict", {key: _outline(value, tensors) for key, value in batch.items()}]
    if isinstance(batch, (tuple, list)):
        return ["list", [_outline(value, tensors) for value in batch]]
    return ["value", batch]


def _receive(team: Communicator, outline: Outline, tensors: list[Tensor]) -> Nested:
    """The batch that ``outline`` describes, with the ``tensors`` of the first rank."""
    kind, content = outline
    if kind == "dict":
        return {key: _receive(team, value, tensors) for key, value in content.items()}
    if kind == "list":
        return [_receive(team, value, tensors) for value in content]
    if kind == "value":
        return content
    number, shape, dtype = content
    if team.rank == 0:
        tensor = tensors[number].detach().cpu().contiguous()
    else:
        tensor = factories.empty(shape, dtype=dtypes.BY_NAME[dtype])
    array = np.asarray(tensor.raw)
    team.broadcast(array, 0, array, name=f"batch: tensor {number}").wait()
    return tensor
