"""Find the trace files under a log directory, and nothing outside of it.

Requests name runs; a run's files come from this walk alone, so no text of a request becomes part of a path.
Links are followed only if they lead to a file inside the log directory.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

#: ``<host>_<rank>.<nanoseconds>.pt.trace.json[.gz][.part]``, and what torch.profiler writes.
TRACE = re.compile(r"(?P<worker>.+?)(?:\.(?P<time>\d+))?\.pt\.trace\.json(?:\.gz)?(?P<part>\.part)?")
MOST_FOLDERS = 20_000
MOST_FILES = 4096
_FRESH_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class TraceFile:
    """One rank's trace of one profiled cycle."""

    path: str
    rank: int
    time: int


@dataclass(frozen=True, slots=True)
class Run:
    """One profiled cycle of a run: a file per rank."""

    name: str
    files: tuple[TraceFile, ...]


class Runs:
    """The runs of a log directory, looked up again at most every two seconds."""

    def __init__(self, logdir: str | None) -> None:
        self._root = Path(logdir) if logdir else None
        self._runs: dict[str, Run] = {}
        self._seen = -_FRESH_SECONDS

    def all(self) -> dict[str, Run]:
        """Return runs by name, ``.`` for the log directory itself; further cycles are ``name (cycle 2)``."""
        now = time.monotonic()
        if now - self._seen >= _FRESH_SECONDS:
            self._runs, self._seen = self._find(), now
        return self._runs

    def _find(self) -> dict[str, Run]:
        runs: dict[str, Run] = {}
        if self._root is None or not self._root.is_dir():
            return runs
        root, left = self._root.resolve(), MOST_FILES
        for count, (folder, folders, names) in enumerate(os.walk(root)):
            folders.sort()
            if count >= MOST_FOLDERS or left <= 0:
                break
            files = [file for name in names[:MOST_FILES] if (file := trace_file(root, folder, name))]
            left -= len(files)
            relative = os.path.relpath(folder, root)
            cycles = _cycles(files)
            for cycle, members in enumerate(cycles):
                name = relative if cycle == 0 else f"{relative} (cycle {cycle + 1})"
                runs[name] = Run(name, tuple(members))
        return dict(sorted(runs.items()))


def trace_file(root: Path, folder: str, name: str) -> TraceFile | None:
    """Return the trace file of that name in a folder, or None if it is none or not inside ``root``."""
    match = TRACE.fullmatch(name)
    if match is None or not name.isprintable():
        return None
    path = Path(folder, name)
    if path.is_symlink():
        path = path.resolve()
        if not path.is_relative_to(root):
            return None
    if not path.is_file():
        return None
    rank = re.search(r"_(\d{1,6})$", match["worker"])
    return TraceFile(str(path), int(rank[1]) if rank else 0, int((match["time"] or "0")[:30]))


def _cycles(files: list[TraceFile]) -> list[list[TraceFile]]:
    """Return the k-th file of every rank, for each k: a run may have several profiled cycles."""
    by_rank: dict[int, list[TraceFile]] = {}
    for file in sorted(files, key=lambda file: (file.time, file.path)):
        by_rank.setdefault(file.rank, []).append(file)
    longest = max(map(len, by_rank.values()), default=0)
    return [[by_rank[r][k] for r in sorted(by_rank) if k < len(by_rank[r])] for k in range(longest)]
