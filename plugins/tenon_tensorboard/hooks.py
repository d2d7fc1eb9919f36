"""Open a writer when a run starts on rank 0, write its metrics, close it. tensorboardX loads only then."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tenon.extend import hookimpl

_SKIPPED = frozenset({"epoch", "final", "world_size", "interrupted"})


class _State:
    writer: Any = None


@hookimpl
def tenon_session_start(session: Any) -> None:
    """One writer, on rank 0: what it writes is about the whole run."""
    if session.is_main and session.config.log.tensorboard:
        from tenon_tensorboard.writer import RunWriter

        _State.writer = RunWriter(session.folder)
        _State.writer.text("config", json.dumps(session.config.model_dump(mode="json"), indent=2))


@hookimpl
def tenon_report(metrics: Mapping[str, Any], step: int) -> None:
    """Numbers as scalars; `test_accuracy` becomes `test/accuracy`."""
    if _State.writer is None:
        return
    for name, value in metrics.items():
        if isinstance(value, (int, float)) and name not in _SKIPPED:
            _State.writer.scalar(
                name.replace("_", "/", 1) if name.startswith(("train_", "test_")) else name, value, step
            )


@hookimpl
def tenon_session_finish(session: Any, error: BaseException | None) -> None:
    """Whatever happened, what was written is on disk."""
    if _State.writer is not None:
        _State.writer.close()
        _State.writer = None
