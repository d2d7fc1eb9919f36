"""Plugin hooks of a run: open a writer per rank, write metrics, close it; tensorboardX is imported only then.

Data of the run as a whole (loss, accuracy, gradients, configuration) is rank 0's, in the run's folder;
the others write their own speed and memory to ``rank_N`` below.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tenon.extend import hookimpl

if TYPE_CHECKING:
    from tenon.extend import Session
    from tenon_tensorboard.writer import RunWriter

_SKIPPED = frozenset({"epoch", "final", "world_size", "interrupted"})
_LAYOUT = {
    "Training": {
        "loss": ["Multiline", ["train/loss", "test/loss"]],
        "accuracy": ["Multiline", ["test/accuracy"]],
        "learning rate": ["Multiline", ["lr"]],
    },
    "Machine": {
        "speed": ["Multiline", ["samples_per_second", "steps_per_second"]],
        "memory": ["Multiline", ["memory_mb"]],
        "gradients": ["Multiline", ["gradient_norm"]],
    },
}


class _State:
    writer: RunWriter | None = None
    #: When the latest step was measured, and its number.
    measured: tuple[float, int] = (0.0, 0)
    #: The latest value of each metric.
    metrics: dict[str, float]


@hookimpl
def tenon_session_start(session: Session) -> None:
    """Open this rank's writer; rank 0 also writes the configuration and the model."""
    if not session.config.log.tensorboard:
        return
    from tenon_tensorboard.writer import RunWriter

    folder = session.folder if session.is_main else session.folder / f"rank_{session.rank}"
    _State.writer = writer = RunWriter(folder)
    _State.measured = (time.perf_counter(), session.step)
    _State.metrics = {}
    if session.is_main:
        writer.text("config", json.dumps(session.config.model_dump(mode="json"), indent=2))
        count = sum(p.numel() for p in session.model.parameters())
        writer.text("model", f"{session.model}\n\n{count:,} parameters")
        writer.layout(_LAYOUT)


@hookimpl
def tenon_step_end(session: Session, step: int, metrics: Mapping[str, object]) -> None:
    """Write speed, memory and gradient norm every ``log.every`` steps, and histograms if configured."""
    writer, done = _State.writer, step + 1
    if writer is None:
        return
    log = session.config.log
    if done % log.every == 0:
        from tenon_tensorboard.measure import gradient_norm, megabytes

        before, first = _State.measured
        _State.measured = (time.perf_counter(), done)
        writer.scalar("steps_per_second", (done - first) / (_State.measured[0] - before), done)
        used = megabytes(session.device)
        if used is not None:
            writer.scalar("memory_mb", used, done)
        if session.division is not None:  # collective: each rank has a part of the gradients
            norm = session.division.gradient_norm()
        elif session.is_main:
            norm = gradient_norm(session.model)
        if session.is_main:
            writer.scalar("gradient_norm", norm, done)
    if session.is_main and log.histograms is not None and done % log.histograms == 0:
        for name, parameter in session.model.named_parameters():
            writer.histogram(f"weights/{name}", parameter.detach().cpu().numpy(), done)
            if parameter.grad is not None:
                writer.histogram(f"gradients/{name}", parameter.grad.cpu().numpy(), done)


@hookimpl
def tenon_report(metrics: Mapping[str, object], step: int) -> None:
    """Write numeric metrics as scalars; `test_accuracy` becomes `test/accuracy`."""
    if _State.writer is None:
        return
    for name, value in metrics.items():
        if isinstance(value, (int, float)) and name not in _SKIPPED:
            tag = name.replace("_", "/", 1) if name.startswith(("train_", "test_")) else name
            _State.writer.scalar(tag, value, step)
            _State.metrics[tag] = float(value)


@hookimpl(trylast=True)  # the profile whose times the graph shows is complete
def tenon_session_finish(session: Session, error: BaseException | None) -> None:
    """Write graph and hyperparameters of a completed run, and close the writer in any case."""
    writer, _State.writer = _State.writer, None
    if writer is None:
        return
    log = session.config.log
    wanted = session.config.profile is not None if log.graph is None else log.graph
    if error is None and wanted and session.division is None:  # else no rank has the whole model
        from tenon_tensorboard.of_session import write_graph

        write_graph(session, writer)
    results = {tag: value for tag, value in _State.metrics.items() if tag.startswith(("train/", "test/"))}
    if session.is_main and results:
        writer.hyperparameters(session.config.model_dump(mode="json"), results)
    writer.close()
