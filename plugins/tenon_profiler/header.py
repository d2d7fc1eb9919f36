"""The header of a trace: its process and run, its clock and the machine."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import time
from collections.abc import Callable, Mapping

import tenon
from tenon.extend import Tensor, no_grad, observe
from tenon_profiler.trace import Header

#: The size of the matrices and the bytes of the array whose product and copy are timed: 2 to 20 ms each.
_SIDE, _BYTES = 512, 1 << 25


def header_of(
    clock: observe.Clock,
    place: observe.Place,
    flags: dict[str, bool],
    cycle: int,
    metadata: Mapping[str, object],
    *,
    measured: bool,
) -> Header:
    """Return the header that ``docs/guide/profiler.md`` documents, with peak rates if ``measured``."""
    header: Header = {
        "schemaVersion": 1,
        "baseTimeNanoseconds": clock.base,
        "displayTimeUnit": "ms",
        "host_name": place.host,
        "deviceProperties": devices(),
        **{name: int(on) for name, on in flags.items()},
    }
    if place.world_size > 1:
        header["distributedInfo"] = {
            "backend": "gloo", "rank": place.rank, "world_size": place.world_size,
        }  # fmt: skip
    header["tenon"] = {
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
    return header


def devices() -> list[dict[str, object]]:
    """Return descriptions of the GPUs, as in Kineto's traces."""
    if not tenon.cuda.is_available():
        return []
    described: list[dict[str, object]] = []
    for index in range(tenon.cuda.device_count()):
        properties = tenon.cuda.get_device_properties(index)
        name = tenon.cuda.get_device_name(index)
        described.append(
            {
                "id": index,
                "name": name,
                "totalGlobalMem": properties["totalGlobalMem"],
                "computeMajor": properties["major"],
                "computeMinor": properties["minor"],
                "numSms": properties["multiProcessorCount"],
            }
        )
    return described


@functools.cache
def machine() -> dict[str, object]:
    """Measure the peak rates of this rank's CPU with its present threads: a matrix product and a copy."""
    one = Tensor([1.0])
    x, array = one.new_full((_SIDE, _SIDE), 1.0), one.new_full((_BYTES // 4,), 1.0)
    with no_grad():
        flops = 2.0 * _SIDE**3 / _best(lambda: x @ x)
        bandwidth = 2.0 * _BYTES / _best(lambda: array.clone())
    return {
        "device": "cpu", "threads": tenon.get_num_threads(), "flops_per_second": flops,
        "bytes_per_second": bandwidth,
    }  # fmt: skip


def _best(work: Callable[[], object]) -> float:
    """Return the shortest of ten times of ``work``, in seconds."""
    times = []
    for _ in range(10):  # 0.1 s in total; other processes may disturb some
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times)
