"""Watch the hooks of a run: name a plugin that takes long, and end a hook that keeps a signal waiting.

Hooks run in the main thread, between the steps of a run, and a signal is acted on between steps, too. A hook
that does not return, because it waits for a server or a lock, would hold up all ranks without a word, and the
end of the run with them. So a thread looks twice a second at the frames of the main thread.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from types import FrameType

from tenon.errors import TrainingError
from tenon.plugins.attribution import Running, callers_of, running_hook
from tenon.plugins.manager import host
from tenon.plugins.watch import Watch
from tenon.training.session import Session

LIMIT = 30.0
"""Seconds after which a hook that still runs is named."""
GRACE = 10.0
"""Seconds that a hook may take after a signal before it is ended."""
PAUSE = 0.5
"""Seconds between two looks."""


class HookWatch(Watch):
    """Watches the hooks of ``session``, while this is entered."""

    def __init__(self, session: Session) -> None:
        super().__init__("tenon hook watch", PAUSE)
        self._session = session
        self._seen: FrameType | None = None
        self._since = 0.0
        self._told = self._ended = False
        self._signalled: float | None = None
        self._overdue: tuple[FrameType, str] | None = None

    def look(self) -> None:
        """Look at what the main thread runs."""
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        self.compare(None if frame is None else running_hook(frame, host()), time.monotonic())

    def answers(self, frame: FrameType | None) -> bool:
        """Whether the signal that has interrupted ``frame`` is the watch's own, and not another Ctrl-C.

        TrainingError if the hook to be ended still runs; if it has just returned, the run ends as after every
        signal.
        """
        overdue, self._overdue = self._overdue, None
        if overdue is None:
            return False
        hook, text = overdue
        if frame is not None and any(each is hook for each in callers_of(frame)):
            raise TrainingError(text)
        return True

    def compare(self, running: Running | None, now: float) -> None:
        """Compare the hook that runs now with that of the last look, and act if it is the same call."""
        if self._session.stopping and self._signalled is None:
            self._signalled = now
        if running is None or running.frame is not self._seen:  # held, so that no later frame has its address
            self._seen = None if running is None else running.frame
            self._since, self._told, self._ended = now, False, False
            return
        seconds = now - self._since
        if seconds >= LIMIT and not self._told:
            self._told = True
            where = f"rank {self._session.rank}, step {self._session.step}"
            text = f"{running.text} has been running for {seconds:.0f} s, and the run waits for it."
            print(f"tenon: {where}: {text}", file=sys.stderr, flush=True)
        if self._signalled is not None and not self._ended:
            waited = now - max(self._since, self._signalled)
            if waited >= GRACE:
                self._end(running, waited)

    def _end(self, running: Running, waited: float) -> None:
        """Have the handler of the signal raise in the hook, once (``signals.py``)."""
        self._ended = True
        number, step = self._session.stopping, self._session.step
        name = signal.Signals(number).name
        text = (
            f"{running.text} was still running {waited:.0f} s after {name}, so step {step} is not finished"
            f" and not saved. Resume from the newest checkpoint of {self._session.folder}; fix the plugin, or"
            " run without it."
        )
        self._overdue = running.frame, text
        signal.pthread_kill(threading.main_thread().ident or 0, number)
