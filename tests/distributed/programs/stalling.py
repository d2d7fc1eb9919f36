"""Stall in the way that the first argument names, on the last rank; the others wait in a collective.

Before any rank can wait for it, the rank writes the time to the file ``CLOCK``. ``several`` as second argument takes
each pair of ranks for a host of its own. The third is the watchdog's time: it judges from the stall on, as ranks
may start one after the other.
"""

import os
import signal
import sys
import time

import numpy as np

from tenon.distributed.processes import failure
from tenon.distributed.processes.launch import launch
from tenon.distributed.processes.watchdog import Watchdog

KIND, HOSTS, LIMIT = sys.argv[1], sys.argv[2], float(sys.argv[3])
communicator = launch()
communicator.step = 17
guard = failure._guard
if HOSTS == "several":
    guard.watchdog = Watchdog(communicator, LIMIT, guard.fail, node=communicator.rank // 2).start()
guard.watchdog.disarm()


def sleep_deep_inside():
    time.sleep(30)


def wait_for_the_others(name):
    communicator.all_reduce(np.ones(3), name=name)


last = communicator.rank == communicator.size - 1
for _ in range(2):
    wait_for_the_others("fc.weight")
if last:
    with open(os.environ["CLOCK"], "w") as file:
        file.write(repr(time.time()))
wait_for_the_others("fc.weight")
guard.watchdog._armed = KIND != "slow_end"
if last:
    match KIND:
        case "sleep":
            sleep_deep_inside()
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "late":
            time.sleep(1)
wait_for_the_others("fc.bias")
guard.watchdog._armed = True
if KIND == "slow_end" and communicator.rank:
    time.sleep(1.5 * LIMIT)
