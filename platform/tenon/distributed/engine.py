"""The parts of an engine beside ``Communicator``: calls, reductions of each dtype, and launching.

Plugins import it as ``tenon.extend.engine``.
"""

from tenon.distributed.communication.arrays import Array
from tenon.distributed.communication.calls import (
    FINISH,
    Agreements,
    Call,
    Work,
    check_message,
    mismatch,
    settle,
)
from tenon.distributed.communication.clock import Clock
from tenon.distributed.communication.objects import encode
from tenon.distributed.communication.reduction import (
    ReduceOp,
    accumulator,
    combine,
    divide,
    element_op,
    reduce_into,
)
from tenon.distributed.communication.several import Arrays
from tenon.distributed.communication.traffic import Traffic, array_bytes
from tenon.distributed.communication.world import use_communicator
from tenon.distributed.processes.launch import DEFAULT, launch
from tenon.distributed.processes.launcher import launched

__all__ = [
    "DEFAULT",
    "FINISH",
    "Agreements",
    "Array",
    "Arrays",
    "Call",
    "Clock",
    "ReduceOp",
    "Traffic",
    "Work",
    "accumulator",
    "array_bytes",
    "check_message",
    "combine",
    "divide",
    "element_op",
    "encode",
    "launch",
    "launched",
    "mismatch",
    "reduce_into",
    "settle",
    "use_communicator",
]
