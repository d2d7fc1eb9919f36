"""Die or stop between ``import tenon`` and the start of MPI, or at the end, on the rank that the second argument names.

No rank goes on before all have imported tenon, in the folder ``READY``.
"""

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

import tenon.distributed
from tenon.distributed.processes import failure

HOW, RANK = sys.argv[1:3]
variables = ("PMI_RANK", "OMPI_COMM_WORLD_RANK")
own = next(os.environ[each] for each in variables if each in os.environ)
size = next(int(os.environ[each]) for each in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE") if each in os.environ)
folder = Path(os.environ["READY"])
(folder / f"ready-{own}").touch()
while len(list(folder.glob("ready-*"))) < size:
    time.sleep(0.005)


def stop_in_finalize():
    failure._guard._on_exit()
    if own == RANK:
        os.kill(os.getpid(), signal.SIGSTOP)


if own == RANK:
    time.sleep(0.1 if HOW != "stop" else 0)
    match HOW:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "terminate":
            os.kill(os.getpid(), signal.SIGTERM)
        case "crash":
            ctypes.string_at(0)
        case "exit":
            os._exit(3)
        case "raise":
            raise ValueError("x")
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
elif HOW in ("kill", "terminate", "crash") and own == "1":
    time.sleep(60)  # this one is not in MPI_Init yet
if HOW == "alone":
    sys.exit()
tenon.distributed.barrier()
if HOW == "stop_at_the_end" and own == RANK:
    os.kill(os.getpid(), signal.SIGSTOP)
if HOW == "stop_in_finalize":
    failure.atexit.unregister(failure._guard._on_exit)
    failure.atexit.register(stop_in_finalize)
