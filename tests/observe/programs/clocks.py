"""Ranks whose hosts' clocks differ, and go differently fast, are profiled; each says when it really did what.

``clocks.py FOLDER known|unknown``: each rank r takes itself for a host of its own, whose clocks are 3 r seconds
ahead, that of the day besides 7 r ms, and go 100 r ppm too fast. They are compared at the start ("known") or
never; then 20 seconds pass at once on all hosts, so that they have gone wrong by 2 r ms.
"""

import json
import os
import sys
import time
from pathlib import Path

rank = int(os.environ.get("PMI_RANK") or os.environ["OMPI_COMM_WORLD_RANK"])
real, day = time.perf_counter_ns, time.time_ns
begun, skipped = real(), 0


def true():
    return real() + skipped


def ahead():
    return rank * (3_000_000_000 + (true() - begun) // 10_000)


time.perf_counter_ns = lambda: true() + ahead()
time.time_ns = lambda: day() + skipped + ahead() + 7_000_000 * rank

import tenon  # noqa: E402
import tenon.distributed as dist  # noqa: E402
from tenon.distributed.communication.world import current  # noqa: E402
from tenon.extend import observe  # noqa: E402
from tenon.profiler import merge, profile, record_function, tensorboard_trace_handler  # noqa: E402
from tenon.profiler.observe import clock as clocks  # noqa: E402

folder, known = Path(sys.argv[1]), sys.argv[2] == "known"
clocks._BOOT = Path("/nowhere")
clocks.socket.gethostname = lambda: f"host{rank}"
dist.init_process_group()
clock = observe.align(current()) if known else observe.own_clock()
begins, days, ends = zip(*((real(), day(), real()) for _ in range(50)), strict=True)
quick = min(range(50), key=lambda i: ends[i] - begins[i])  # nothing came between the two clocks
apart = days[quick] - (begins[quick] + ends[quick]) // 2
# What its clock showed when it was compared is when that was and how far it was ahead, which grows by 1 in 10,000.
shown = clock.at - clock.wall if known else time.perf_counter_ns()
since = (shown - begun - rank * 3_000_000_000) / (1 + rank / 10_000)
off = round(clock.wall + shown - begun - since) - apart  # from the clock of the day of rank 0's host
skipped = 20_000_000_000
pair, _ = dist.new_subgroups(2)
x = tenon.ones(1000)
marks = []
with profile(on_trace_ready=tensorboard_trace_handler(folder, f"host{rank}_{rank}"), clock=clock):
    for number in range(60):
        time.sleep(0.005)
        dist.all_reduce(x)
        dist.all_reduce(x, group=pair)
        before = true() + apart
        with record_function(f"mark {number}"):
            marks.append((before, true() + apart))
print(json.dumps({"rank": rank, "marks": marks, "off_ns": off, "error_ns": clock.error}), flush=True)
dist.barrier()
if rank == 0:
    merge(folder)
dist.barrier()
dist.destroy_process_group()
