"""Add up ones over ranks of which some, the numbers given, are killed at step 5; those that are left go on.

Rank 0 of those that are left prints, as JSON, the sums of all steps and the seconds from the last full step
to the first one of fewer ranks.
"""

import json
import os
import signal
import sys
import time

import numpy as np

import tenon.distributed as dist
from tenon.distributed import elastic
from tenon.errors import RankFailedError

DOOMED = [int(number) for number in sys.argv[1:]]
STEPS = 10
sums, stopped = [], None


def train():
    global stopped
    communicator = dist.get_communicator()
    first, full = len(sums), communicator.size == int(os.environ["OMPI_COMM_WORLD_SIZE"])
    for communicator.step in range(first, STEPS):
        if full and communicator.step == 5:
            stopped = time.monotonic()
            if communicator.rank in DOOMED:
                os.kill(os.getpid(), signal.SIGKILL)
        sums.append(int(communicator.all_reduce(np.ones(1), name="ones").wait()[0]))
        if communicator.step == 5 and communicator.rank == 0:
            print(json.dumps({"seconds": time.monotonic() - stopped}))


while True:
    try:
        train()
        break
    except RankFailedError:
        size = elastic.shrink().size
assert (
    dist.get_world_size()
    == size
    == len({*dist.get_communicator().all_gather(np.array(dist.get_rank())).wait()})
)
if dist.get_rank() == 0:
    print(json.dumps({"sums": sums}))
