"""Where a run's numbers go: ``metrics.jsonl``, plugins' ``tenon_report``, and the progress display."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tenon.plugins.manager import host
from tenon.training.terminal import Screen


class MetricsFile:
    """JSON lines, appended and flushed one by one, so that a killed run keeps all it wrote."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 - lives as long as the run

    def write(self, line: Mapping[str, Any]) -> None:
        """One object on one line."""
        self._file.write(json.dumps(dict(line), allow_nan=True) + "\n")
        self._file.flush()

    def close(self) -> None:
        """No more lines."""
        self._file.close()


class Reporter:
    """What rank 0 shows and writes; the other ranks have ``SilentReporter``."""

    def __init__(self, folder: Path, steps_per_epoch: int, epochs: int, done: int) -> None:
        self._metrics = MetricsFile(folder / "metrics.jsonl")
        self.console = Screen()
        self._progress = Progress(
            TextColumn("epoch {task.fields[epoch]}/{task.fields[epochs]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[shown]}"),
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
            shown="",
        )

    def __enter__(self) -> Reporter:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
        self._metrics.close()

    def line(self, text: str) -> None:
        """One line of text above the progress bar."""
        self._progress.console.print(text, soft_wrap=True)

    def advance(self, epoch: int, loss: float) -> None:
        """One step is done."""
        self._progress.update(self._task, advance=1, epoch=epoch, shown=f"loss {loss:.4f}")

    def report(self, metrics: Mapping[str, Any], step: int) -> None:
        """Write ``metrics`` everywhere."""
        self._metrics.write({"step": step, "time": round(time.time(), 3), **metrics})
        host().hook.tenon_report(metrics=dict(metrics), step=step)


class SilentReporter:
    """Ranks other than 0 show and write nothing."""

    def __enter__(self) -> SilentReporter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def line(self, text: str) -> None:
        """Nothing."""

    def advance(self, epoch: int, loss: float) -> None:
        """Nothing."""

    def report(self, metrics: Mapping[str, Any], step: int) -> None:
        """Nothing."""
