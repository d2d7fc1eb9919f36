"""Records of failures: ``failures/rank-2.json`` in the run folder, one file per rank.

A later failure replaces a record; records of one job have the same ``job``. The fields, all always present:

======== =====================================================================================
schema   ``"tenon.failure/1"``
rank     the rank that the record is about, an integer; ``size``: how many there were, 0 if unknown
host     its host's name; ``process``: its process id
step     its training step, null outside of training
time     when the failure was noticed, in UTC, as ISO 8601
job      an identifier of the job; ``attempt``: that of ``tenon launch``, 0 without it
reported whether this rank's failure is the one that was reported; the others ended with the job
reason   what happened to it, a verb phrase such as ``"was killed by SIGKILL"``
signal   the signal that ended it, such as ``"SIGKILL"``, null if none or unknown
status   its exit status, null if a signal ended it or it is unknown
line     the last line of its program that is known, ``"train.py:31 in step"``, null if none
report   the report as it was printed, empty if this rank's was not
======== =====================================================================================

This file imports nothing of tenon: the monitor (``host_monitor.py``) imports it alone.
"""

from __future__ import annotations

import datetime
import json
import os
import re
from typing import TypeAlias

SCHEMA = "tenon.failure/1"
FOLDER = "failures"
#: A record, of JSON values.
Record: TypeAlias = dict[str, object]
_HEADLINE = re.compile(r"=== tenon: rank \d+ of \d+ on host \S+?(?:, step \d+)? (.*) ===")
_FRAME = re.compile(r'File "(.+)", line (\d+),? in (.+)')
_BEAT = re.compile(r"^  (.+:\d+ in .+)$", re.MULTILINE)


def make(
    rank: int,
    size: int,
    host: str,
    process: int,
    step: int | None,
    job: str,
    attempt: int,
    *,
    reported: bool,
    reason: str,
    signal: str | None = None,
    status: int | None = None,
    line: str | None = None,
    report: str = "",
) -> Record:
    """A record of now; the parameters are its fields."""
    return {
        "schema": SCHEMA,
        "rank": rank,
        "size": size,
        "host": host,
        "process": process,
        "step": step,
        "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds"),  # noqa: UP017
        "job": job,
        "attempt": attempt,
        "reported": reported,
        "reason": reason,
        "signal": signal,
        "status": status,
        "line": line,
        "report": report.strip("\n"),
    }


def reason_of(report: str) -> str:
    """The verb phrase in the headline of a report."""
    found = _HEADLINE.search(report)
    return found[1] if found is not None else report.strip().partition("\n")[0]


def line_of(report: str) -> str | None:
    """The innermost line of the traceback or the stack in a report; None if it has none."""
    frames = _FRAME.findall(report)
    if frames:
        first = "most recent call first" in report  # as ``faulthandler`` writes them
        name, number, function = frames[0 if first else -1]
        return f"{name}:{number} in {function}"
    found = _BEAT.search(report)
    return found[1] if found is not None else None


def write(run: str, record: Record) -> None:
    """Write ``record`` into the run folder ``run``, whole or not at all; OSError if it cannot be."""
    folder = os.path.join(run, FOLDER)
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"rank-{record['rank']}.json")
    temporary = os.path.join(folder, f".rank-{record['rank']}.{os.urandom(8).hex()}")
    with open(temporary, "x", encoding="utf-8") as file:
        file.write(json.dumps(record, indent=2) + "\n")
    os.replace(temporary, path)


def claim(run: str, job: str) -> bool:
    """Whether this process is the first of ``job``, on any host, that claims the report in ``run``."""
    folder = os.path.join(run, FOLDER)
    os.makedirs(folder, exist_ok=True)
    try:
        os.close(os.open(os.path.join(folder, f".reported-{job}"), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True


def oom_kills() -> int:
    """How many processes of this host the kernel has killed for memory, those of control groups included."""
    try:
        with open("/proc/vmstat", encoding="ascii") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("oom_kill ")), 0)
    except OSError:
        return 0
