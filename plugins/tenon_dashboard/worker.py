"""Read trace files in processes of their own: ``python -m tenon_dashboard.worker`` forks one for each file.

A process, because files can be hostile: memory and processor time are limited by the operating system, and
TensorBoard goes on answering meanwhile. Forked, because to start Python and NumPy takes longer than a first
look at a file. ``nursery.py`` sends the path of a file and a socket, on which every line asks
(``readers.py``): ``look`` for a first part of the file, ``read`` for all there is. Both are answered with
lines of JSON: ``{"progress": bytes}`` and digests of what was read so far, at last ``{"digest": ...,
"timeline": bytes, "ended": all was read, "finished": the file is complete}`` followed by so many bytes of
``timeline.pack``, or an ``"error"``. A worker goes on where it stopped when the file has grown. It ends
with its socket, when the file is finished, or unasked for a minute.
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
from typing import Any, BinaryIO

from tenon_dashboard.collect import Collected
from tenon_dashboard.digest import digest
from tenon_dashboard.lines import Lines
from tenon_dashboard.stream import BadTrace, EventStream
from tenon_dashboard.sweep import one_step, sweep
from tenon_dashboard.timeline import pack

MEMORY_LIMIT = 3 << 30
SECONDS_LIMIT = 600
IDLE_SECONDS = 60
#: Characters of a first look: some thousands of events.
LOOK = 2 << 20


def _say(out: BinaryIO, message: dict[str, Any], blob: bytes = b"") -> None:
    out.write(json.dumps(message, separators=(",", ":")).encode() + b"\n" + blob)
    out.flush()


def _take(stream: EventStream, lines: Lines, out: BinaryIO, most: float) -> bool:
    """Read so many characters, or what there is: whether that was all. Tell how far it is now and then."""
    begun = spoken = time.monotonic()
    summed, collected = 0.5, lines.collected
    for length in stream.read(lines):
        if length >= most:
            return False
        if time.monotonic() - spoken > 0.2:
            spoken = time.monotonic()
            _say(out, {"progress": stream.position})
            if spoken - begun > summed:
                _say(out, {"digest": digest(collected, sweep(collected), stream.header), "timeline": 0})
                summed = 3 * (time.monotonic() - begun)
    return True


def serve(path: str, ask: io.RawIOBase, out: BinaryIO) -> None:
    """Answer each line of ``ask`` until the file is finished or wrong."""
    collected = Collected()
    lines = Lines(collected)
    try:
        stream = EventStream(path)
        while select.select([ask], [], [], IDLE_SECONDS)[0] and (question := ask.readline()):
            ended = (
                _take(stream, lines, out, LOOK if question == b"look\n" else float("inf")) or stream.finished
            )
            swept = sweep(collected)
            if stream.finished and not swept.steps:
                swept.steps = one_step(collected)
            blob = pack(collected, swept)
            answer = {"digest": digest(collected, swept, stream.header), "timeline": len(blob)}
            _say(out, answer | {"ended": ended, "finished": stream.finished}, blob)
            del swept, blob, answer
            if stream.finished:
                return
    except BadTrace as error:
        _say(out, {"error": str(error)})
    except MemoryError:
        _say(out, {"error": f"needs more than {MEMORY_LIMIT >> 20} MiB of memory"})
    except OSError as error:
        _say(out, {"error": f"cannot be read: {error.strerror}"})


def limit() -> None:
    """Let the operating system end this process when it needs too much."""
    for kind, most in ((resource.RLIMIT_AS, MEMORY_LIMIT), (resource.RLIMIT_CPU, SECONDS_LIMIT)):
        already = resource.getrlimit(kind)[1]
        most = most if already == resource.RLIM_INFINITY else min(most, already)
        resource.setrlimit(kind, (most, most))


def _work(path: str, answers: int) -> None:
    limit()
    with socket.socket(fileno=answers) as line, contextlib.suppress(ConnectionError):
        serve(path, line.makefile("rb", buffering=0), line.makefile("wb"))


def main() -> None:
    """Fork a worker for each path that comes with a socket, until nobody asks any more."""
    gc.disable()  # parsed events hold no cycles; looking for some takes a third of the time
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(fileno=0) as asked:
        while True:
            path, sockets, _, _ = socket.recv_fds(asked, 1 << 16, 1)
            if not path:
                return
            if os.fork() == 0:
                asked.close()
                _work(os.fsdecode(path), sockets[0])
                os._exit(0)
            os.close(sockets[0])
            asked.sendall(b"\n")


if __name__ == "__main__":
    main()
