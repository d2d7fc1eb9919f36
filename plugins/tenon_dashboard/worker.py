"""Read one trace file in a process of its own: ``python -m tenon_dashboard.worker FILE``.

A process, because files can be hostile: memory and processor time are limited by the operating system, and
TensorBoard goes on answering meanwhile. Each line of its input asks for what there is now. It answers with
lines of JSON: ``{"progress": bytes}`` and digests of what was read so far while it reads, then ``{"digest":
..., "timeline": bytes, "finished": ...}`` followed by so many bytes of ``timeline.pack``, or an ``"error"``.
It goes on where it stopped when the file has grown, and ends with its input, when the file is finished, or
unasked for a minute.
"""

from __future__ import annotations

import gc
import io
import json
import resource
import select
import sys
import time
from typing import Any, BinaryIO

from tenon_dashboard.collect import Collected
from tenon_dashboard.digest import digest
from tenon_dashboard.stream import BadTrace, EventStream
from tenon_dashboard.sweep import one_step, sweep
from tenon_dashboard.timeline import pack

MEMORY_LIMIT = 3 << 30
SECONDS_LIMIT = 600
IDLE_SECONDS = 60


def _say(out: BinaryIO, message: dict[str, Any], blob: bytes = b"") -> None:
    out.write(json.dumps(message, separators=(",", ":")).encode() + b"\n" + blob)
    out.flush()


def _take(stream: EventStream, collected: Collected, out: BinaryIO) -> None:
    """Read what there is; say how far it is and, less and less often, what it comes to so far."""
    begun = spoken = time.monotonic()
    summed = 0.4
    for count, event in enumerate(stream.events()):
        collected.add(event)
        if not count & 4095 and time.monotonic() - spoken > 0.2:
            spoken = time.monotonic()
            _say(out, {"progress": stream.position})
            if spoken - begun > summed:
                _say(out, {"digest": digest(collected, sweep(collected), stream.header), "timeline": 0})
                summed = 3 * (time.monotonic() - begun)


def serve(path: str, ask: io.RawIOBase, out: BinaryIO) -> None:
    """Answer each line of ``ask`` until the file is finished or wrong."""
    collected = Collected()
    try:
        stream = EventStream(path)
        while True:
            _take(stream, collected, out)
            swept = sweep(collected)
            if stream.finished and not swept.steps:
                swept.steps = one_step(collected)
            blob = pack(collected, swept)
            summary = digest(collected, swept, stream.header)
            _say(out, {"digest": summary, "timeline": len(blob), "finished": stream.finished}, blob)
            del swept, blob, summary
            if stream.finished or not select.select([ask], [], [], IDLE_SECONDS)[0] or not ask.readline():
                return
    except BadTrace as error:
        _say(out, {"error": str(error)})
    except MemoryError:
        _say(out, {"error": f"needs more than {MEMORY_LIMIT >> 20} MiB of memory"})
    except OSError as error:
        _say(out, {"error": f"cannot be read: {error.strerror}"})


def main() -> None:
    """Serve the file named on the command line, within limits."""
    gc.disable()  # parsed events hold no cycles; looking for some takes a third of the time
    for kind, limit in ((resource.RLIMIT_AS, MEMORY_LIMIT), (resource.RLIMIT_CPU, SECONDS_LIMIT)):
        already = resource.getrlimit(kind)[1]
        limit = limit if already == resource.RLIM_INFINITY else min(limit, already)
        resource.setrlimit(kind, (limit, limit))
    serve(sys.argv[1], open(0, "rb", buffering=0), sys.stdout.buffer)  # noqa: SIM115 - as long as the process


if __name__ == "__main__":
    main()
