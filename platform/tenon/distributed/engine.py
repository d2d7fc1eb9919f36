"""What an engine needs beside ``Communicator``: calls to compare, and how each dtype is reduced.

Plugins reach it as ``tenon.extend.engine``.
"""

from tenon.distributed.calls import FINISH, Call, Work, digest, mismatch
from tenon.distributed.reduction import ReduceOp, accumulator, element_op, reduce_in_order
from tenon.distributed.startup import launched

__all__ = [
    "FINISH",
    "Call",
    "ReduceOp",
    "Work",
    "accumulator",
    "digest",
    "element_op",
    "launched",
    "mismatch",
    "reduce_in_order",
]
