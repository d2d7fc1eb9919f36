"""Profiles steps into a folder until it is stopped; prints a line after each 50."""

import sys

import tenon
from tenon import nn
from tenon.profiler import profile, tensorboard_trace_handler

model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
with profile(
    on_trace_ready=tensorboard_trace_handler(sys.argv[1], use_gzip=True), record_shapes=True
) as prof:
    for number in range(1_000_000):
        model(tenon.randn(4, 8)).sum().backward()
        prof.step()
        if number % 50 == 49:
            print(number, flush=True)
