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
from types import FrameType, TracebackType

from tenon.plugins.attribution import Running, running_hook
from tenon.plugins.manager import host
from tenon.training.session import Session

LIMIT = 30.0
"""Seconds after which a hook that still runs is named."""
GRACE = 10.0
"""Seconds that a hook may take after a signal before it is ended."""
PAUSE = 0.5
"""Seconds between two looks."""


class HookWatch:
    """A thread that watches the hooks of ``session``, while this is entered; ``overdue`` is a hook to end."""

    def __init__(self, session: Session) -> None:
        self.overdue: str | None = None
        self._session = session
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="tenon hook watch", daemon=True)
        self._seen: FrameType | None = None
        self._since = self._told = 0.0
        self._signalled: float | None = None

    def __enter__(self) -> HookWatch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(PAUSE):
            frame = sys._current_frames().get(threading.main_thread().ident or 0)
            self._look(None if frame is None else running_hook(frame, host()), time.monotonic())
        self._seen = None

    def _look(self, running: Running | None, now: float) -> None:
        """Compare the hook that runs now with that of the last look, and act if it is the same call."""
        if self._session.stopping and self._signalled is None:
            self._signalled = now
        if running is None or running.frame is not self._seen:  # held, so that no later frame has its address
            self._seen = None if running is None else running.frame
            self._since, self._told = now, 0.0
            return
        seconds = now - self._since
        if seconds >= LIMIT and not self._told:
            self._told = now
            where = f"rank {self._session.rank}, step {self._session.step}"
            text = f"{running.text} has been running for {seconds:.0f} s, and the run waits for it."
            print(f"tenon: {where}: {text}", file=sys.stderr, flush=True)
        if self._signalled is not None and self.overdue is None:
            waited = now - max(self._since, self._signalled)
            if waited >= GRACE:
                self._end(running, waited)

    def _end(self, running: Running, waited: float) -> None:
        """Have the handler of the signal raise in the hook (``signals.py``)."""
        number, step = self._session.stopping, self._session.step
        name = signal.Signals(number).name
        self.overdue = (
            f"{running.text} was still running {waited:.0f} s after {name}, so step {step} is not finished"
            f" and not saved. Resume from the newest checkpoint of {self._session.folder}; fix the plugin, or"
            " run without it."
        )
        signal.pthread_kill(threading.main_thread().ident or 0, number)
