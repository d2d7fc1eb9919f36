"""Profiles a million ops and prints the peak of the process's memory, in MB."""

import resource
import sys

import tenon
from tenon.profiler import profile, tensorboard_trace_handler

x = tenon.ones(4)
with profile(on_trace_ready=tensorboard_trace_handler(sys.argv[1], use_gzip=True), record_shapes=True):
    for _ in range(1_000_000):
        x + x
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
