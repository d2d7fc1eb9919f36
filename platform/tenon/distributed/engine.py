"""What an engine needs beside ``Communicator``: calls to compare, and how each dtype is reduced.

Plugins reach it as ``tenon.extend.engine``.
"""

from tenon.distributed.communication.calls import FINISH, Call, Work, check_message, mismatch, settle
from tenon.distributed.communication.reduction import (
    ReduceOp,
    accumulator,
    combine,
    divide,
    element_op,
    reduce_into,
)
from tenon.distributed.communication.traffic import Traffic, array_bytes
from tenon.distributed.processes.launcher import launched

__all__ = [
    "FINISH",
    "Call",
    "ReduceOp",
    "Traffic",
    "Work",
    "accumulator",
    "array_bytes",
    "check_message",
    "combine",
    "divide",
    "element_op",
    "launched",
    "mismatch",
    "reduce_into",
    "settle",
]
