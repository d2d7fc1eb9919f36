"""Report a run's metrics: to ``metrics.jsonl``, to plugins' ``tenon_report``, and on a progress bar."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tenon.distributed.processes import slow_ranks
from tenon.plugins.manager import host
from tenon.training import lock
from tenon.training.terminal import Screen


class MetricsFile:
    """A JSON Lines file, flushed after each record so that a killed run loses none."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 - lives as long as the run

    def write(self, line: Mapping[str, object]) -> None:
        """Append one record."""
        self._file.write(json.dumps(dict(line), allow_nan=True) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Reporter:
    """Progress display and metrics of rank 0; the other ranks use ``SilentReporter``."""

    def __init__(self, folder: Path, steps_per_epoch: int, epochs: int, done: int) -> None:
        self._folder = Path(os.path.realpath(folder))
        self._metrics = MetricsFile(folder / "metrics.jsonl")
        self._slow = slow_ranks.Listener()
        self.console = Screen()
        self._progress = Progress(
            TextColumn("epoch {task.fields[epoch]}/{task.fields[epochs]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[status]}"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self._task = self._progress.add_task(
            "train",
            total=steps_per_epoch * epochs,
            completed=done,
            epoch=min(done // max(steps_per_epoch, 1) + 1, epochs),
            epochs=epochs,
            status="",
        )

    def __enter__(self) -> Reporter:
        self._slow.start()
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
        self._slow.stop()
        self._metrics.close()

    def line(self, text: str) -> None:
        """Print a line of text above the progress bar."""
        self._progress.console.print(text, soft_wrap=True)

    def advance(self, epoch: int, loss: float) -> None:
        """Advance the progress bar by one step."""
        self._progress.update(self._task, advance=1, epoch=epoch, status=f"loss {loss:.4f}")

    def report(self, metrics: Mapping[str, float | str], step: int) -> None:
        """Write ``metrics`` to the file, and numbers to plugins; TrainingError if the folder was lost."""
        lock.check_if_late(self._folder)
        self._metrics.write({"step": step, "time": round(time.time(), 3), **metrics})
        numbers = {name: value for name, value in metrics.items() if not isinstance(value, str)}
        host().hook.tenon_report(metrics=numbers, step=step)

    def report_slow_ranks(self, step: int) -> None:
        """Print and report what has been found of slow ranks since the last call."""
        for found in self._slow.take():
            self.line(escape(found.text))
            self.report(found.record, step)


class SilentReporter:
    """The reporter of ranks other than 0: every method does nothing."""

    def __enter__(self) -> SilentReporter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def line(self, text: str) -> None:
        """Do nothing."""

    def advance(self, epoch: int, loss: float) -> None:
        """Do nothing."""

    def report(self, metrics: Mapping[str, float | str], step: int) -> None:
        """Do nothing."""

    def report_slow_ranks(self, step: int) -> None:
        """Do nothing."""
