"""Lock a run folder, so that two jobs never write into one run.

``lock.json`` in the folder names its owner: user, host, process, start time. It is made by ``link``, which
is atomic on NFS too (no ``flock``), and its modification time is renewed every ``BEAT`` seconds.
A lock whose owner is gone is taken over: on the owner's host if no process has its number and start time; on
other hosts if it has not been renewed for ``STALE`` seconds, by the clock of the file server; at once if a
later attempt of the same ``tenon launch``, or a later start of the same Slurm job, finds it.

Taking over is a race among the jobs that find the lock stale. Whoever creates ``.lock.<token>.taken``, named
after the stale lock's token, may replace that lock and no other.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import json
import os
import secrets
import socket
import threading
import time
from pathlib import Path

import click

from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.communication.objects import decode, encode
from tenon.distributed.processes import failure_record
from tenon.errors import CheckpointError, TrainingError
from tenon.serialize.regular_files import open_regular
from tenon.training import lock_owner, run_folder
from tenon.training.lock_owner import STALE, Owner

NAME = "lock.json"
BEAT = 10.0
DYING_TIME = 5.0
"""Longest wait in seconds for the processes of an earlier attempt of the same launch to be gone."""
#: The most bytes that are read of the record of a failure, which has up to 100 lines.
_LONGEST = 1 << 20
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EOPNOTSUPP}


class RunLock:
    """The lock of ``folder``, held by this process until ``release``."""

    def __init__(self, folder: Path, token: str) -> None:
        self.folder = folder
        self.token = token
        self.process = os.getpid()
        self._renewed = time.time()
        self._over = threading.Event()
        threading.Thread(target=self._renew, name="run lock", daemon=True).start()

    def check(self) -> None:
        """Raise TrainingError if another job has taken the folder over, as one may from a suspended job."""
        owner = lock_owner.read(self.folder / NAME)
        if owner is None or owner.get("token") != self.token:
            now = "no job" if owner is None else lock_owner.describe(owner)
            raise TrainingError(
                f"the run folder {self.folder} was taken over while this job was suspended or cut off: its"
                f" lock now names {now}. Nothing more is written there; resume it once that job has ended."
            )

    def check_if_late(self) -> None:
        """``check``, if the lock has not been renewed in time: this process may have been suspended."""
        if abs(time.time() - self._renewed) > 2 * BEAT:
            self.check()

    def release(self) -> None:
        """Remove the lock, if this process still holds it."""
        if os.getpid() != self.process or self._over.is_set():
            return  # a forked child, or released before
        self._over.set()
        atexit.unregister(self.release)
        _held.pop(self.folder, None)
        with contextlib.suppress(OSError):
            if (lock_owner.read(self.folder / NAME) or {}).get("token") == self.token:
                os.unlink(self.folder / NAME)

    def _renew(self) -> None:
        path = self.folder / NAME
        while not self._over.wait(BEAT):
            with contextlib.suppress(OSError):  # a server that is away; ``check`` notices a lost lock
                if (lock_owner.read(path) or {}).get("token") == self.token:
                    os.utime(path)
                    self._renewed = time.time()


_held: dict[Path, RunLock] = {}
_tokens: dict[Path, str] = {}
"""The last lock of each folder that a rank of this job held, known to all ranks."""


def hold(communicator: Communicator, folder: Path) -> None:
    """Lock ``folder`` on rank 0, for all ranks; TrainingError on all if another job has it, or if a run must
    not write there. Collective."""
    named, folder = folder, Path(os.path.realpath(folder))
    token, problem = "", None
    if communicator.rank == 0:
        try:
            token = take(folder, _tokens.get(folder)).token
            run_folder.check(named)
        except TrainingError as error:
            release(folder)
            problem = str(error)
    answers = communicator.all_gather_bytes(encode([token, problem]), name="run lock")
    token, problem = decode(answers[0])
    if problem is not None:
        raise TrainingError(problem)
    _tokens[folder] = token  # if rank 0 is killed and others go on, they may take the lock over


def check(folder: Path) -> None:
    """TrainingError if this process has held the lock of ``folder`` and lost it."""
    lock = _held.get(Path(os.path.realpath(folder)))
    if lock is not None:
        lock.check()


def check_if_late(folder: Path) -> None:
    """``check``, where this process may have been suspended: it costs nothing else."""
    lock = _held.get(folder)
    if lock is not None:
        lock.check_if_late()


def release(folder: Path) -> None:
    """Release the lock of ``folder``, if this process holds it."""
    lock = _held.get(Path(os.path.realpath(folder)))
    if lock is not None:
        lock.release()


def take(folder: Path, former: str | None = None) -> RunLock:
    """Lock ``folder``, or return the lock that this process holds; TrainingError if another job has it.

    ``former``: the token of a lock whose owner is known to be gone.
    """
    folder = Path(os.path.realpath(folder))
    held = _held.get(folder)
    if held is not None and held.process == os.getpid():  # else of the process that forked this one
        return held
    token = secrets.token_hex(8)
    temporary = folder / f".lock.{socket.gethostname()}.{os.getpid()}.{token}"
    try:
        try:
            temporary.write_text(json.dumps(lock_owner.identity(token), indent=2) + "\n")
            _acquire(folder, temporary, token, former)
            for leftover in folder.glob(".lock.*"):  # of a job that was killed while it took the lock
                if _age(leftover, temporary) > STALE:
                    leftover.unlink(missing_ok=True)
        finally:
            with contextlib.suppress(OSError):  # of a file system that nothing can be written to
                temporary.unlink(missing_ok=True)
    except OSError as error:
        reason = f"{error.strerror} ({error.filename})"
        raise TrainingError(f"cannot lock the run folder {folder}: {reason}. {run_folder.ADVICE}") from error
    lock = _held[folder] = RunLock(folder, token)
    atexit.register(lock.release)
    return lock


def _acquire(folder: Path, temporary: Path, token: str, former: str | None) -> None:
    """Make ``temporary`` the lock of ``folder``; TrainingError if it has a living owner."""
    path = folder / NAME
    deadline = time.monotonic() + DYING_TIME
    while not _create(temporary, path):
        owner = lock_owner.read(path)
        if owner is None:
            continue  # released in between
        age = _age(path, temporary)
        if not lock_owner.is_gone(owner, former, age):
            if lock_owner.same_launch(owner) and time.monotonic() < deadline:
                time.sleep(0.1)  # its last processes are being ended
                continue
            raise TrainingError(_refusal(folder, owner, age))
        if _replace(folder, temporary, token, owner, former):
            _record_end(folder, owner)
            return


def _record_end(folder: Path, owner: Owner) -> None:
    """Write the record of a job that left only its lock, unless its own records are there."""
    path, began = folder / failure_record.FOLDER / "rank-0.json", owner.get("time")
    with contextlib.suppress(OSError, ValueError, RecursionError, CheckpointError):
        with open_regular(path) as file:
            record = json.loads(file.read(_LONGEST))
        written = record.get("time") if isinstance(record, dict) else None
        if isinstance(written, str) and written >= str(began):
            return
    process = owner.get("process")
    record = failure_record.make(
        0, 0, str(owner.get("host", "")), process if isinstance(process, int) else 0, None, "", 0,
        reported=False, reason=f"ended without a report some time after {began}: the next job found its lock",
    )  # fmt: skip
    try:
        failure_record.write(str(folder), record)
    except OSError as error:
        click.echo(f"tenon: no record of the job that left its lock could be written: {error}", err=True)


def _replace(folder: Path, temporary: Path, token: str, owner: Owner, former: str | None) -> bool:
    """Replace the stale lock of ``owner``; False if it is no longer there, TrainingError if a rival does."""
    path, last = folder / NAME, owner
    abandoned = []
    while not _create(temporary, claim := folder / f".lock.{last.get('token')}.taken"):
        rival = lock_owner.read(claim)
        if rival is None:
            return False
        if not lock_owner.is_gone(rival, former, _age(claim, temporary)):
            raise TrainingError(_refusal(folder, rival, 0.0))
        abandoned.append(claim)  # that job died while it took over: who claims its claim, goes on from there
        last = rival
    try:
        if (lock_owner.read(path) or {}).get("token") != owner.get("token"):
            return False
        replacement = folder / f"{temporary.name}.new"
        replacement.write_bytes(temporary.read_bytes())
        try:
            os.replace(replacement, path)
        except FileNotFoundError:  # the server may have replaced it and its answer been lost
            if (lock_owner.read(path) or {}).get("token") != token:
                raise
        for each in abandoned:
            each.unlink(missing_ok=True)
        return True
    finally:
        claim.unlink(missing_ok=True)


def _create(temporary: Path, path: Path) -> bool:
    """Give ``temporary`` the second name ``path``; False if that exists."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        # The server may have linked it and its answer been lost: the file then has both names.
        return _same(temporary, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return _create_exclusively(temporary, path)
    return True


def _create_exclusively(temporary: Path, path: Path) -> bool:
    """The same on file systems without links; readers wait for content that is not there yet."""
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except FileExistsError:
        return False
    with open(descriptor, "wb") as file:
        file.write(temporary.read_bytes())
    return True


def _same(one: Path, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except FileNotFoundError:
        return False


def _age(path: Path, temporary: Path) -> float:
    """Seconds since the lock ``path`` was renewed, by the clock of the file server; 0 if it is gone."""
    os.utime(temporary)
    try:
        # Opening asks the server, where a mere stat may be cached.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return temporary.stat().st_mtime - path.lstat().st_mtime if path.is_symlink() else 0.0
    try:
        return temporary.stat().st_mtime - os.fstat(descriptor).st_mtime
    finally:
        os.close(descriptor)


def _refusal(folder: Path, owner: Owner, age: float) -> str:
    here = lock_owner.is_here(owner)
    sign = "it is running" if here else f"last sign of life {max(age, 0):.0f} s ago"
    after = "" if here else f" A job that shows none for {STALE:.0f} s counts as ended."
    if age < -STALE:  # the folder is a copy from a host whose clock was ahead, for example
        after = f" The time of {NAME} lies {-age:.0f} s in the future: delete it if that job has ended."
    used = f"is in use by {lock_owner.describe(owner)}"
    if not owner:
        used = f"has a {NAME} that no job of tenon has written, or that is damaged"
    return (
        f"the run folder {folder} {used}; {sign}. Wait for its end, or choose"
        f" another with --run FOLDER.{after}"
    )
