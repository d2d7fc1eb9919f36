"""torch.distributed's messages between two ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tenon.distributed.communication import staging
from tenon.distributed.communication.calls import Work
from tenon.distributed.messages.identity import explicit_name
from tenon.distributed.messages.process_group import Group, root_of, taking_part
from tenon.distributed.messages.results import TensorWork
from tenon.errors import CommunicatorError, RankArgumentError
from tenon.tensors.tensor import Tensor


def isend(
    tensor: Tensor,
    dst: int | None = None,
    group: Group = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> Work | None:
    """Start to send ``tensor`` to rank ``dst``; it must not be changed before ``wait``."""
    communicator = taking_part(group, "isend")
    if communicator is None:
        return None
    staging.refuse_recording("isend")
    host = staging.to_host(staging.check_tensor(tensor, "isend"))
    return TensorWork(
        None, communicator.send(host, root_of(communicator, dst, group_dst, "dst"), tag, name=explicit_name())
    )


def irecv(
    tensor: Tensor,
    src: int | None = None,
    group: Group = None,
    tag: int = 0,
    group_src: int | None = None,
) -> Work | None:
    """Start to receive ``tensor`` from rank ``src``; its values are valid after ``wait``."""
    communicator = taking_part(group, "irecv")
    if communicator is None:
        return None
    if src is None and group_src is None:
        raise CommunicatorError("irecv: receiving from any rank is not supported. Pass its rank as src.")
    staging.refuse_recording("irecv")
    host = staging.to_host(staging.check_tensor(tensor, "irecv"))
    buffer = host if host.flags.c_contiguous and host.flags.writeable else np.empty(host.shape, host.dtype)
    root = root_of(communicator, src, group_src, "src")
    work = communicator.receive(buffer, root, tag, name=explicit_name())
    return TensorWork(tensor, work)


def send(
    tensor: Tensor,
    dst: int | None = None,
    group: Group = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> None:
    """Send ``tensor`` to rank ``dst``."""
    work = isend(tensor, dst, group, tag, group_dst)
    if work is not None:
        work.wait()


def recv(
    tensor: Tensor,
    src: int | None = None,
    group: Group = None,
    tag: int = 0,
    group_src: int | None = None,
) -> int:
    """Receive ``tensor`` from rank ``src``; return ``src``, or -1 if this rank is not in the group."""
    work = irecv(tensor, src, group, tag, group_src)
    if work is None:
        return -1
    work.wait()
    communicator = taking_part(group, "recv")
    assert communicator is not None
    return communicator.ranks[root_of(communicator, src, group_src, "src")]


class P2POp:
    """A message for ``batch_isend_irecv``: ``op`` is ``isend`` or ``irecv``."""

    def __init__(
        self,
        op: Callable[..., Work | None],
        tensor: Tensor,
        peer: int | None = None,
        group: Group = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None:
        if op not in (isend, irecv):
            raise RankArgumentError(f"Invalid ``op``: P2POp takes isend or irecv, not {op!r}.")
        self.op, self.tensor, self.peer, self.group, self.tag = op, tensor, peer, group, tag
        self.group_peer = group_peer


def batch_isend_irecv(p2p_op_list: Sequence[P2POp]) -> list[Work]:
    """Start all messages and return their handles, each of which must be waited for."""
    if not all(isinstance(each, P2POp) for each in p2p_op_list):
        raise RankArgumentError("Invalid ``p2p_op_list``: each of its items must be a P2POp.")
    works = [each.op(each.tensor, each.peer, each.group, each.tag, each.group_peer) for each in p2p_op_list]
    return [work for work in works if work is not None]
