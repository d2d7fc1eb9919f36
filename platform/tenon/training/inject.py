"""``tenon train --inject "rank=2 step=50 kill"``: faults on purpose, to see what a job does about them.

A fault is a few words: on which rank (``rank=2``), at which steps (``step=50``, or ``step=50-80`` for a fault
that lasts), in which attempt of ``tenon launch`` (``attempt=1`` unless given), and what happens. Faults are a
plugin of the run: they act where a step begins, or where its samples are read.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from tenon.data.combined import samples_of
from tenon.data.dataset import Dataset, Source, Splits
from tenon.distributed.processes.startup import attempt
from tenon.errors import ConfigError, TrainingError
from tenon.plugins.hookspecs import hookimpl
from tenon.plugins.manager import host
from tenon.training.session import Session

FORM = (
    '"rank=R step=S [attempt=A] [after=SECONDS] ACTION", with ACTION one of kill, stop, crash, exit=STATUS,'
    " error, hang, slow=SECONDS and slow-data=SECONDS, as in --inject 'rank=2 step=50 kill'"
)
_NEVER = sys.maxsize


@dataclass(frozen=True)
class Fault:
    """What happens on ``rank`` from step ``first`` to ``last`` of one attempt.

    ``after`` is the delay in seconds from the beginning of the step, so that signals come inside of it.
    """

    text: str
    action: str
    value: float
    rank: int
    first: int
    last: int
    attempt: int
    after: float


def parse(text: str) -> Fault:
    """The fault that ``text`` describes; ConfigError if it does not.

    >>> fault = parse("rank=2 step=50 kill")
    >>> fault.rank, fault.first, fault.action
    (2, 50, 'kill')
    """
    found: dict[str, str] = {}
    for word in text.split():
        key, _, value = word.partition("=")
        kind = key if key in _FIELDS else "action"
        if kind in found:
            raise _refused(text, f"{word!r} comes after {found[kind]!r}")
        found[kind] = word if kind == "action" else value
    for kind in ("rank", "step", "action"):
        if kind not in found:
            raise _refused(text, f"it has no {kind}")
    action, _, value = found["action"].partition("=")
    if action not in ACTIONS:
        raise _refused(text, f"{action!r} is no action")
    first, _, last = found["step"].partition("-")
    begin = _whole(text, "step", first)
    end = _whole(text, "step", last) if last else _NEVER if action in LASTING else begin
    if end < begin or ("-" in found["step"] and (not last or action not in LASTING)):
        raise _refused(text, f"step={found['step']} is no range of steps of {action!r}")
    if "after" in found and action not in SIGNALS:
        raise _refused(text, f"{action!r} comes at the beginning of a step, not later: leave out 'after'")
    return Fault(
        text=text.strip(),
        action=action,
        value=_value(text, action, value),
        rank=_whole(text, "rank", found["rank"]),
        first=begin,
        last=end,
        attempt=_whole(text, "attempt", found.get("attempt", "1")),
        after=_seconds(text, "after", found.get("after", "0")),
    )


@contextlib.contextmanager
def injecting(faults: Sequence[Fault], rank: int, ranks: int) -> Iterator[None]:
    """Let the faults of this attempt happen to ``rank`` of ``ranks`` in runs inside of the context.

    ConfigError, equally on all ranks, if a fault has a rank that does not exist.
    """
    due = [fault for fault in faults if fault.attempt == (attempt() or 1)]
    for fault in due:
        if fault.rank >= ranks:
            there = "there is 1 rank" if ranks == 1 else f"there are {ranks} ranks"
            raise ConfigError(f"--inject {fault.text!r}: {there}, counted from 0.")
    plugin = Faults([fault for fault in due if fault.rank == rank])
    host().register(plugin, "injected faults")
    try:
        yield
    finally:
        host().unregister(plugin)


class Faults:
    """The plugin by which ``faults`` happen to this process, whatever its rank becomes later."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self._faults = faults
        self._begun: set[Fault] = set()

    @hookimpl
    def tenon_session_start(self, session: Session) -> None:
        """Put a slow reader between the training loop and its samples, where a fault asks for one."""
        for fault in self._faults:
            if fault.action == "slow-data":
                train = _SlowSource(session.data.train, fault, session, self._begin)
                session.data = Splits(train, session.data.test)

    @hookimpl
    def tenon_step_begin(self, session: Session, step: int) -> None:
        """Let what is due happen: once, or at each of its steps."""
        for fault in self._faults:
            if fault.action == "slow-data" or not fault.first <= step <= fault.last:
                continue
            if self._begin(fault, step) or fault.action in LASTING:
                ACTIONS[fault.action](fault)

    def _begin(self, fault: Fault, step: int) -> bool:
        """Whether ``fault`` has not happened before, and say so."""
        if fault in self._begun:
            return False
        self._begun.add(fault)
        print(f"tenon train: injects {fault.text!r} at step {step}", file=sys.stderr, flush=True)
        return True


class _SlowSource(Dataset[Any]):  # of the samples of any data set
    """A data set that takes longer to read, once a step, at the steps of a fault."""

    def __init__(
        self,
        source: Source[Any],  # of any samples
        fault: Fault,
        session: Session,
        begin: Callable[[Fault, int], bool],
    ) -> None:
        self._source, self._fault, self._session, self._begin = source, fault, session, begin
        self._last = -1

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: Any) -> Any:  # as the data set's own
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> Sequence[Any]:  # samples of the data set's own type
        """The samples at ``indices``, later if they are the first of a step at which the fault acts."""
        step = self._session.step
        if step != self._last and self._fault.first <= step <= self._fault.last:
            self._last = step
            self._begin(self._fault, step)
            time.sleep(self._fault.value)
        return samples_of(self._source, indices)


def _signal(fault: Fault) -> None:
    """Send the signal to this process, at once or from a thread, while the step goes on."""

    def send() -> None:
        os.kill(os.getpid(), SIGNALS[fault.action])

    if fault.after:
        timer = threading.Timer(fault.after, send)
        timer.daemon = True
        timer.start()
    else:
        send()


def _exit(fault: Fault) -> NoReturn:
    sys.exit(int(fault.value))


def _raise(fault: Fault) -> NoReturn:
    raise TrainingError(f"a fault on purpose, by --inject {fault.text!r}.")


def _hang(fault: Fault) -> None:
    while True:
        time.sleep(1.0)


def _sleep(fault: Fault) -> None:
    time.sleep(fault.value)


LASTING = ("slow", "slow-data")
SIGNALS: Mapping[str, int] = {
    name: getattr(signal, number)
    for name, number in (("kill", "SIGKILL"), ("stop", "SIGSTOP"), ("crash", "SIGSEGV"))
    if hasattr(signal, number)
}
ACTIONS: Mapping[str, Callable[[Fault], None]] = {
    **dict.fromkeys(SIGNALS, _signal), "exit": _exit, "error": _raise, "hang": _hang, "slow": _sleep,
    "slow-data": _sleep,
}  # fmt: skip
_FIELDS = ("rank", "step", "attempt", "after")


def _value(text: str, action: str, value: str) -> float:
    if action == "exit":
        status = _whole(text, action, value)
        if not 0 < status < 256:
            raise _refused(text, f"exit={status} is no status of a failure: 1 to 255")
        return status
    if action in LASTING:
        return _seconds(text, action, value)
    if value:
        raise _refused(text, f"{action!r} takes no value")
    return 0.0


def _whole(text: str, name: str, value: str) -> int:
    if not re.fullmatch(r"[0-9]{1,12}", value):
        raise _refused(text, f"{name}={value} is no whole number")
    return int(value)


def _seconds(text: str, name: str, value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < math.inf:
        raise _refused(text, f"{name}={value} is no number of seconds")
    return seconds


def _refused(text: str, problem: str) -> ConfigError:
    return ConfigError(f"--inject {text!r}: {problem}. Write {FORM}.")
