"""Profiles a million ops and prints the peak of the process's memory, in MB.

``million.py FOLDER shapes|memory``: the trace is written to the folder, with shapes alone or memory too.
"""

import sys

import tenon
from tenon.profiler import profile, tensorboard_trace_handler

folder, what = sys.argv[1:]
ready = tensorboard_trace_handler(folder, use_gzip=True)
x = tenon.ones(4)
with profile(on_trace_ready=ready, record_shapes=True, profile_memory=what == "memory"):
    for _ in range(1_000_000):
        x + x
# Not getrusage, whose peak is at first that of the process that started this one.
with open("/proc/self/status") as status:
    print(next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmHWM:")))
