"""The first line of a trace: which process of which run, which clock, which machine."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import time
from typing import Any

import tenon
from tenon.extend import Tensor, no_grad, observe

#: Sides of the matrices and bytes of the array whose product and copy are timed: 2 to 20 ms each.
_SIDE, _BYTES = 512, 1 << 25


def header_of(
    clock: observe.Clock,
    place: observe.Place,
    flags: dict[str, bool],
    cycle: int,
    metadata: dict[str, Any],
    *,
    measured: bool,
) -> dict[str, Any]:
    """As ``docs/guide/profiler.md`` states it; with the machine's peaks if they are to be ``measured``."""
    found: dict[str, Any] = {
        "schemaVersion": 1,
        "baseTimeNanoseconds": clock.base,
        "displayTimeUnit": "ms",
        "host_name": place.host,
        "deviceProperties": devices(),
        **{name: int(on) for name, on in flags.items()},
    }
    if place.world_size > 1:
        found["distributedInfo"] = {
            "backend": "gloo", "rank": place.rank, "world_size": place.world_size,
        }  # fmt: skip
    found["tenon"] = {
        "format": 1,
        "version": importlib.metadata.version("tenon-platform"),
        "rank": place.rank,
        "local_rank": place.local_rank,
        "world_size": place.world_size,
        "node": place.node,
        "host": place.host,
        "engine": place.engine,
        "pid": os.getpid(),
        "cycle": cycle,
        "started_ns": time.perf_counter_ns() + clock.wall,
        "clock": {
            "id": clock.id, "offset_ns": clock.offset, "error_ns": clock.error, "aligned": clock.aligned,
            "at_ns": clock.at,
        },
        "machine": machine() if measured else None,
        "metadata": metadata,
    }  # fmt: skip
    return found


def devices() -> list[dict[str, Any]]:
    """GPUs, as Kineto describes them."""
    if not tenon.cuda.is_available():
        return []
    found = []
    for index in range(tenon.cuda.device_count()):
        properties = tenon.cuda.get_device_properties(index)
        name = tenon.cuda.get_device_name(index)
        found.append(
            {
                "id": index,
                "name": name,
                "totalGlobalMem": properties["totalGlobalMem"],
                "computeMajor": properties["major"],
                "computeMinor": properties["minor"],
                "numSms": properties["multiProcessorCount"],
            }
        )
    return found


@functools.cache
def machine() -> dict[str, Any]:
    """What this rank's CPU does at best: a product of matrices and a copy, with the threads it has now."""
    one = Tensor([1.0])
    x, array = one.new_full((_SIDE, _SIDE), 1.0), one.new_full((_BYTES // 4,), 1.0)
    with no_grad():
        flops = 2.0 * _SIDE**3 / _best(lambda: x @ x)
        moved = 2.0 * _BYTES / _best(lambda: array.clone())
    return {
        "device": "cpu", "threads": tenon.get_num_threads(), "flops_per_second": flops,
        "bytes_per_second": moved,
    }  # fmt: skip


def _best(work: Any) -> float:
    times = []
    for _ in range(10):  # 0.1 s in all: others may be at work
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times)
