"""Read trace files in separate processes: ``python -m tenon_dashboard.worker`` forks one for each file.

Separate processes, because files can be hostile: memory and processor time are limited by the operating
system, and TensorBoard remains responsive. Forked, because starting Python and NumPy takes longer than
reading the first part of a file. ``fork_server.py`` sends the path of a file and a socket, on which each line
is a request (``readers.py``): ``look`` for the first part of the file, ``read`` for all of it. Responses are
lines of JSON: ``{"progress": bytes}`` and digests of what was read so far, and finally ``{"digest": ...,
"timeline": bytes, "ended": all was read, "finished": the file is complete}``, followed by so many bytes of
``timeline.pack``, or an ``"error"``. A worker continues where it stopped when the file has grown. It ends
when its socket is closed, when the file is finished, or after an idle minute.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import resource
import select
import signal
import socket
import time
from typing import BinaryIO

from tenon_dashboard.collect import Collected, JsonObject
from tenon_dashboard.digest import digest
from tenon_dashboard.lines import Lines
from tenon_dashboard.stream import BadTrace, EventStream
from tenon_dashboard.sweep import one_step, sweep
from tenon_dashboard.timeline import pack

MEMORY_LIMIT = 3 << 30
SECONDS_LIMIT = 600
IDLE_SECONDS = 60
#: The number of characters of the first part: some thousands of events.
LOOK = 2 << 20


def _send(out: BinaryIO, message: JsonObject, blob: bytes = b"") -> None:
    out.write(json.dumps(message, separators=(",", ":")).encode() + b"\n" + blob)
    out.flush()


def _read_events(stream: EventStream, lines: Lines, out: BinaryIO, limit: float) -> bool:
    """Read at most ``limit`` characters, reporting progress now and then; return whether that was all."""
    began = reported = time.monotonic()
    summed, collected = 0.5, lines.collected
    for length in stream.read(lines):
        if length >= limit:
            return False
        if time.monotonic() - reported > 0.2:
            reported = time.monotonic()
            _send(out, {"progress": stream.position})
            if reported - began > summed:
                _send(out, {"digest": digest(collected, sweep(collected), stream.header), "timeline": 0})
                summed = 3 * (time.monotonic() - began)
    return True


def serve(path: str, requests: io.RawIOBase, out: BinaryIO) -> None:
    """Respond to each line of ``requests`` until the file is finished or invalid."""
    collected = Collected()
    lines = Lines(collected)
    try:
        stream = EventStream(path)
        while select.select([requests], [], [], IDLE_SECONDS)[0] and (request := requests.readline()):
            ended = (
                _read_events(stream, lines, out, LOOK if request == b"look\n" else float("inf"))
                or stream.finished
            )
            swept = sweep(collected)
            if stream.finished and not swept.steps:
                swept.steps = one_step(collected)
            blob = pack(collected, swept)
            response = {"digest": digest(collected, swept, stream.header), "timeline": len(blob)}
            _send(out, response | {"ended": ended, "finished": stream.finished}, blob)
            del swept, blob, response
            if stream.finished:
                return
    except BadTrace as error:
        _send(out, {"error": str(error)})
    except MemoryError:
        _send(out, {"error": f"needs more than {MEMORY_LIMIT >> 20} MiB of memory"})
    except OSError as error:
        _send(out, {"error": f"cannot be read: {error.strerror}"})


def limit() -> None:
    """Let the operating system limit the memory and processor time of this process."""
    for kind, bound in ((resource.RLIMIT_AS, MEMORY_LIMIT), (resource.RLIMIT_CPU, SECONDS_LIMIT)):
        present = resource.getrlimit(kind)[1]
        bound = bound if present == resource.RLIM_INFINITY else min(bound, present)
        resource.setrlimit(kind, (bound, bound))


def _work(path: str, descriptor: int) -> None:
    limit()
    with socket.socket(fileno=descriptor) as line, contextlib.suppress(ConnectionError):
        serve(path, line.makefile("rb", buffering=0), line.makefile("wb"))


def main() -> None:
    """Fork a worker for each path that is received with a socket, until the connection is closed."""
    gc.disable()  # parsed events have no cycles, and the search for some takes a third of the time
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(fileno=0) as requests:
        while True:
            path, sockets, _, _ = socket.recv_fds(requests, 1 << 16, 1)
            if not path:
                return
            if os.fork() == 0:
                requests.close()
                _work(os.fsdecode(path), sockets[0])
                os._exit(0)
            os.close(sockets[0])
            requests.sendall(b"\n")


if __name__ == "__main__":
    main()
