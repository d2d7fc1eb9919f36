"""torch.distributed's collectives of plain Python values, which are sent as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from tenon.errors import ShapeError
from tenon.extend import Communicator
from tenon.extend import distributed_parts as parts

#: A plain Python value: None, booleans, numbers, strings, and lists, tuples and dicts of them.
Value: TypeAlias = Any
#: The group that takes part: None for all ranks.
Group: TypeAlias = Communicator | parts.NonMember | None


def all_gather_object(object_list: list[Value], obj: Value, group: Group = None) -> None:
    """Gather ``obj`` of rank r into ``object_list[r]`` on all ranks: plain values, not pickled."""
    communicator = parts.taking_part(group, "all_gather_object")
    if communicator is None:
        return
    if len(object_list) != communicator.size:
        raise ShapeError(
            f"all_gather_object: object_list has {len(object_list)} items for {communicator.size} ranks. "
            "Make it [None] * get_world_size()."
        )
    payloads = communicator.all_gather_bytes(
        parts.encode(obj), name=parts.place_name(obj, (1, "obj")), detail="all_gather_object"
    )
    object_list[:] = [parts.decode(payload) for payload in payloads]


def gather_object(
    obj: Value,
    object_gather_list: list[Value] | None = None,
    dst: int | None = None,
    group: Group = None,
    group_dst: int | None = None,
) -> None:
    """Gather ``obj`` of rank r into ``object_gather_list[r]`` on rank ``dst``; other ranks pass no list."""
    communicator = parts.taking_part(group, "gather_object")
    if communicator is None:
        return
    root = 0 if dst is None and group_dst is None else parts.root_of(communicator, dst, group_dst, "dst")
    gathered = object_gather_list or []
    if communicator.rank == root and len(gathered) != communicator.size:
        raise ShapeError(
            f"gather_object: object_gather_list has {len(gathered)} items for {communicator.size} ranks. "
            "Make it [None] * get_world_size()."
        )
    payloads = communicator.all_gather_bytes(
        parts.encode(obj), name=parts.place_name(obj, (0, "obj")), detail=f"gather_object to rank {root}"
    )
    if communicator.rank == root:
        gathered[:] = [parts.decode(payload) for payload in payloads]


def broadcast_object_list(
    object_list: list[Value],
    src: int | None = None,
    group: Group = None,
    device: object = None,
    group_src: int | None = None,
) -> None:
    """Replace the values in ``object_list`` by those of rank ``src``: plain values, nothing is pickled.

    ``device`` has no effect: values are sent as bytes from the host.
    """
    communicator = parts.taking_part(group, "broadcast_object_list")
    if communicator is None:
        return
    root = 0 if src is None and group_src is None else parts.root_of(communicator, src, group_src, "src")
    mine = parts.encode(object_list) if communicator.rank == root else b""
    payloads = communicator.all_gather_bytes(
        mine,
        name=parts.place_name(object_list, (0, "object_list")),
        detail=f"broadcast_object_list from rank {root}",
    )
    _replace(object_list, parts.decode(payloads[root]), root, "broadcast_object_list")


def scatter_object_list(
    scatter_object_output_list: list[Value],
    scatter_object_input_list: Sequence[Value] | None = None,
    src: int | None = None,
    group: Group = None,
    group_src: int | None = None,
) -> None:
    """Write value r of rank ``src`` to ``scatter_object_output_list[0]`` on rank r."""
    communicator = parts.taking_part(group, "scatter_object_list")
    if communicator is None:
        return
    root = 0 if src is None and group_src is None else parts.root_of(communicator, src, group_src, "src")
    values = list(scatter_object_input_list or ())
    if communicator.rank == root and len(values) != communicator.size:
        raise ShapeError(
            f"scatter_object_list: scatter_object_input_list has {len(values)} values for"
            f" {communicator.size} ranks. Pass one per rank on rank {root}."
        )
    if not scatter_object_output_list:
        raise ShapeError(
            "Expected argument scatter_object_output_list to be a list of size at least 1: its item 0 "
            "receives the value."
        )
    mine = parts.encode(values) if communicator.rank == root else b""
    payloads = communicator.all_gather_bytes(
        mine, name=parts.place_name(), detail=f"scatter_object_list from rank {root}"
    )
    scatter_object_output_list[0] = parts.decode(payloads[root])[communicator.rank]


def send_object_list(
    object_list: list[Value],
    dst: int | None = None,
    group: Group = None,
    device: object = None,
    group_dst: int | None = None,
    use_batch: bool = False,
) -> None:
    """Send the values to rank ``dst``, which must call ``recv_object_list``.

    ``device`` and ``use_batch`` have no effect: values are sent as bytes from the host, in two messages.
    """
    communicator = parts.taking_part(group, "send_object_list")
    if communicator is None:
        return
    parts.refuse_recording("send_object_list")
    root = 0 if dst is None and group_dst is None else parts.root_of(communicator, dst, group_dst, "dst")
    payload, name = np.frombuffer(parts.encode(list(object_list)), np.uint8), parts.explicit_name()
    communicator.send(np.array([payload.size]), root, name=name).wait()
    communicator.send(payload, root, name=name).wait()


def recv_object_list(
    object_list: list[Value],
    src: int | None = None,
    group: Group = None,
    device: object = None,
    group_src: int | None = None,
    use_batch: bool = False,
) -> int:
    """Replace the values in ``object_list`` by those that rank ``src`` sends; return ``src``, or -1 outside.

    ``device`` and ``use_batch`` have no effect: values are sent as bytes from the host, in two messages.
    """
    communicator = parts.taking_part(group, "recv_object_list")
    if communicator is None:
        return -1
    parts.refuse_recording("recv_object_list")
    root = parts.root_of(communicator, src, group_src, "src")
    length, name = np.empty(1, np.int64), parts.explicit_name()
    communicator.receive(length, root, name=name).wait()
    payload = np.empty(int(length[0]), np.uint8)
    communicator.receive(payload, root, name=name).wait()
    _replace(object_list, parts.decode(payload.tobytes()), root, "recv_object_list")
    return communicator.ranks[root]


def _replace(values: list[Value], received: list[Value], root: int, function: str) -> None:
    if len(received) != len(values):
        raise ShapeError(
            f"{function}: rank {root} sent {len(received)} values, but this rank's list has {len(values)}. "
            "Pass lists of equal length."
        )
    values[:] = received
