"""Send a state dict of rank 0 to all ranks, one value at a time, so that no rank has two copies of a
model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tenon import dtypes
from tenon.distributed.checkpoint.flattening import flatten_state_dict, set_element
from tenon.distributed.checkpoint.metadata import STATE_DICT_TYPE
from tenon.distributed.communication import objects, world
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.fsdp.whole_parameters import sharded_like
from tenon.tensors.creation import factories
from tenon.tensors.tensor import Tensor


def broadcast_state(values: Mapping[str, object], own: Mapping[str, object]) -> STATE_DICT_TYPE:
    """The ``values`` that rank 0 passed, on all ranks; tensors whose namesakes in ``own`` are DTensors as
    DTensors, of which each rank keeps its part at once. Collective."""
    communicator = world.get_communicator()
    is_root = communicator.rank == 0
    flat, paths = flatten_state_dict(values) if is_root else ({}, {})
    sent = communicator.all_gather_bytes(objects.encode(paths), name="state dict: names")[0]
    found: STATE_DICT_TYPE = {}
    for name, path in objects.decode(sent).items():
        value = send(communicator, flat.get(name), name)
        shared = sharded_like({name: value}, {name: own[name]}) if name in own else {name: value}
        set_element(found, path, shared[name])
    return found


def send(communicator: Communicator, value: object, name: str, root: int = 0) -> Any:  # as ``value``
    """The ``value`` of rank ``root``, on all ranks; tensors are on the CPU. Other ranks pass any value."""
    is_tensor = isinstance(value, Tensor)
    described: object = [list(value.shape), value.dtype.name] if isinstance(value, Tensor) else value
    payload = objects.encode((is_tensor, described)) if communicator.rank == root else b""
    is_tensor, received = objects.decode(
        communicator.all_gather_bytes(payload, name=f"state dict: {name}")[root]
    )
    if not is_tensor:
        return received
    shape, kind = received
    if isinstance(value, Tensor) and communicator.rank == root:
        tensor = value.detach().cpu().contiguous()
    else:
        tensor = factories.empty(shape, dtype=dtypes.BY_NAME[kind])
    array = np.asarray(tensor.raw)
    communicator.broadcast(array, root, array, name=f"state dict: {name}").wait()
    return tensor
