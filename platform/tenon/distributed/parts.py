"""The parts of communication hooks and further collectives: ``tenon.extend.distributed_parts``.

``to_host`` and ``write`` convert a tensor to the array that communicators send, and back. ``done`` is a
completed future; ``taking_part`` and ``find_group`` return the communicator of a group.
``place_name`` names a collective of no tensor by where it was called.
``Joinable`` and what follows from it are the interface of objects that take part in a ``Join`` block.
"""

from tenon.distributed.communication.futures import Future
from tenon.distributed.communication.objects import decode, encode
from tenon.distributed.communication.staging import refuse_recording, to_host, write
from tenon.distributed.joinable import Joinable, JoinConfig, JoinHook, count_ranks, notify_join_context
from tenon.distributed.messages.identity import explicit_name, place_name
from tenon.distributed.messages.process_group import (
    NonMember,
    find_group,
    new_subgroups,
    root_of,
    taking_part,
)
from tenon.distributed.replicas.comm_hooks import GradBucket, allreduce_hook, done, group

__all__ = [
    "Future",
    "GradBucket",
    "JoinConfig",
    "JoinHook",
    "Joinable",
    "NonMember",
    "allreduce_hook",
    "count_ranks",
    "decode",
    "done",
    "encode",
    "explicit_name",
    "find_group",
    "group",
    "new_subgroups",
    "notify_join_context",
    "place_name",
    "refuse_recording",
    "root_of",
    "taking_part",
    "to_host",
    "write",
]
