"""Fail in the way that the first argument names, on the rank given third, before tenon is imported."""

import os
import signal
import sys
import time

HOW, DELAY, RANK = sys.argv[1:4]
if (os.environ.get("PMI_RANK") or os.environ["OMPI_COMM_WORLD_RANK"]) == RANK:
    time.sleep(float(DELAY))
    with open(os.environ["CLOCK"], "w") as file:
        file.write(repr(time.time()))
    match HOW:
        case "exception":
            raise ValueError("a bad value")
        case "import":
            import a_module_that_is_not_there  # noqa: F401
        case "exit":
            sys.exit(3)
        case "raised_exit":
            raise SystemExit(3)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)

from tenon.distributed import barrier  # noqa: E402

barrier()
