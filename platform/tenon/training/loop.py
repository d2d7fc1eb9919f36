"""The training loop: epochs of steps, evaluation and checkpoints, calling plugins' hooks around each.

After a signal (Ctrl-C, SIGTERM, SIGUSR1) on any rank, all ranks finish the step; then the run is saved and
prints how to resume it (``signals.py``). The step itself is in ``step.py``.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
import traceback
from pathlib import Path

import numpy as np

from tenon import random
from tenon.device import Device
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.communication.objects import decode, encode
from tenon.distributed.processes import failure, failure_record
from tenon.distributed.processes.launch import launch
from tenon.distributed.replicas import logical_shards
from tenon.distributed.replicas.broadcast import broadcast_tensors
from tenon.distributed.replicas.gradients import GradientSynchronizer
from tenon.distributed.replicas.logical_shards import LogicalShards
from tenon.errors import CommunicatorError, ConfigError, TrainingError, UnsupportedError
from tenon.functions.settings import set_num_threads
from tenon.nn.module import Module
from tenon.plugins.manager import host
from tenon.training import checkpoint, data_parallel, environment, hook_watch, lock, signals
from tenon.training.config import RunConfig
from tenon.training.metrics import Reporter, SilentReporter
from tenon.training.parallel import auto
from tenon.training.parallel import build as parallel
from tenon.training.recipe import (
    Recipe,
    build_data,
    build_loss,
    build_model,
    build_optimizer,
    build_scheduler,
)
from tenon.training.session import Metrics, Session, agree_on_config, make_folder, write_json
from tenon.training.step import epoch_order, evaluate, make_scaler, train_step


def open_session(
    config: RunConfig,
    recipe: Recipe | None,
    resumed: checkpoint.Resumed | None = None,
    folder: Path | None = None,
    model: Module | None = None,
) -> Session:
    """Build everything a run needs, the same on all ranks: model, data, loss, optimizer, run folder.

    ``resumed`` is the result of ``checkpoint.fetch``; without it a new run begins, in ``folder`` if given.
    ``model`` is trained instead of the one that the configuration names.
    """
    communicator = launch()
    before = _newest(folder)
    environment.agree(communicator)
    agree_on_config(communicator, config)
    config = auto.with_mesh(config, communicator)
    data = build_data(config, recipe)
    random.manual_seed(config.seed)
    if model is None:
        with parallel.building(config):
            model = build_model(config, recipe)
    parallel.check(config, model, communicator.size)
    device = Device(config.device)
    if not config.parallel.meta:
        model.to(device)
    if config.threads is not None:
        set_num_threads(config.threads)
    if not config.parallel.divides:
        model = data_parallel.prepare_model(config, model)
        if config.shards is not None:
            _check_shards(config.shards, communicator.size, model)
    loss = build_loss(config)
    total = math.ceil(len(data.train) / config.batch_size) * config.epochs
    # Built here only to raise their errors before the run folder exists; built again after plugins' hooks.
    build_scheduler(config, build_optimizer(config, model), total)
    data_parallel.find_hook(config)
    folder = make_folder(communicator, config, folder) if resumed is None else resumed[0]
    lock.hold(communicator, folder)
    if resumed is None:
        _refuse_another_job(communicator, folder, before)
    if (monitor := failure.monitor()) is not None:
        monitor.keep_records_in(str(folder))
    session = Session(config, communicator, model, loss, data, device, folder)
    host().hook.tenon_prepare_model(model=model, session=session)
    session.division = parallel.build(session)
    sharded = config.data_parallel.shard_optimizer
    session.optimizer = (
        data_parallel.shard(config, session.model, communicator)
        if sharded
        else build_optimizer(config, session.model)
    )
    session.scaler = make_scaler(config, device)
    session.scheduler = build_scheduler(config, session.optimizer, total)
    if resumed is not None:
        checkpoint.restore(session, resumed[1])
    elif session.is_main:
        write_json(folder / "config.json", config.model_dump(mode="json"))
    if session.is_main:
        environment.record(folder, environment.current())
    return session


def _newest(folder: Path | None) -> str | None:
    """The name of the newest checkpoint in the run folder ``folder``; None if there is none."""
    found = [] if folder is None else checkpoint.all_of(folder)
    return found[0].name if found else None


def _refuse_another_job(communicator: Communicator, folder: Path, before: str | None) -> None:
    """TrainingError on all ranks if another job has trained in ``folder`` while this one was starting."""
    answers = communicator.all_gather_bytes(encode(_newest(folder) != before), name="newest checkpoint")
    if decode(answers[0]):
        lock.release(folder)
        raise TrainingError(
            f"another job has trained in the run folder {folder} while this one was starting, and has ended."
            " Start again to resume its run, or choose another folder with --run FOLDER."
        )


def _check_shards(shards: int, ranks: int, model: Module) -> None:
    try:
        logical_shards.check(shards, ranks, model)
    except (CommunicatorError, UnsupportedError) as error:
        raise ConfigError(str(error)) from None


def run(session: Session) -> Metrics:
    """Train to the end, or until a signal or ``session.stop``; return the last record of the metrics."""
    config = session.config
    lock.hold(session.communicator, session.folder)  # held since ``open_session``, but for a second run
    steps_per_epoch = math.ceil(len(session.data.train) / config.batch_size)
    reporter: Reporter | SilentReporter = SilentReporter()
    if session.is_main:
        reporter = Reporter(session.folder, steps_per_epoch, config.epochs, session.step)
    with hook_watch.HookWatch(session) as watch:
        return _run(session, reporter, watch)


def _run(session: Session, reporter: Reporter | SilentReporter, watch: hook_watch.HookWatch) -> Metrics:
    failed: BaseException | None = None
    hooks = host().hook
    hooks.tenon_session_start(session=session)
    try:
        with reporter, signals.stopping(session, watch):
            return _train(session, reporter)
    except BaseException as error:
        failed = error
        _record(session, error)
        if session.writer is not None:
            session.writer.wait(session.writer.patience)
        raise
    finally:
        hooks.tenon_session_finish(session=session, error=failed)
        if session.writer is None or session.writer.wait(0):
            lock.release(session.folder)  # else it is released when the program ends, after the last file
        failed = None  # breaks the reference cycle between its traceback and this frame


def _record(session: Session, error: BaseException) -> None:
    """Write ``failures/rank-0.json`` of a run on one rank; several have failure hooks, which write theirs."""
    if session.size > 1:
        return
    report = "".join(traceback.format_exception(error))
    record = failure_record.make(
        0, 1, session.communicator.host, os.getpid(), session.step, session.communicator.job, 0,
        reported=True, reason=f"failed with {type(error).__name__}", status=1,
        line=failure_record.line_of(report), report=report,
    )  # fmt: skip
    with contextlib.suppress(OSError):  # a full disk, maybe, is the very failure: it is raised in any case
        failure_record.write(str(session.folder), record)


def _train(session: Session, reporter: Reporter | SilentReporter) -> Metrics:
    config = session.config
    synchronizer = None
    if session.division is None:
        synchronizer = data_parallel.make_synchronizer(config, session.model, session.communicator)
        broadcast_tensors(list(session.model.buffers()), session.communicator, name="buffers")
    if config.shards is not None and synchronizer is not None:
        threads = config.threads or 1
        session.shards = LogicalShards(session.model, synchronizer, config.shards, threads, config.seed)
    session.model.train()
    parameters = sum(p.numel() for p in session.model.parameters())
    ranks = "1 rank" if session.size == 1 else f"{session.size} ranks"
    if session.division is not None:
        parameters, ranks = session.division.parameters, f"{ranks} ({session.division.mesh.sizes})"
    reporter.line(
        f"{config.recipe or config.model}: {parameters:,} parameters, {len(session.data.train):,} training"
        f" and {len(session.data.test):,} test samples, {ranks} on {session.device}"
    )
    if session.step:
        reporter.report(
            {"resumed": True, "epoch": session.epoch + 1, "world_size": session.size}, session.step
        )
        reporter.line(f"resumes after step {session.step} of {session.folder}")
    meter, hooks = _Meter(session), host().hook
    while session.epoch < config.epochs:
        cause = _train_epoch(session, synchronizer, reporter, meter)
        if cause is not None:
            return _interrupt(session, reporter, meter, cause)
        session.epoch += 1
        session.position = 0
        if session.scheduler is not None and config.scheduler is not None and config.scheduler.per == "epoch":
            session.scheduler.step()
        meter.pause()
        evaluated = _evaluate(session)
        session.metrics = {"epoch": session.epoch, **evaluated, "samples_per_second": round(meter.rate(), 1)}
        reporter.report(session.metrics, session.step)
        results = "  ".join(f"{k.replace('_', ' ')} {v:.4f}" for k, v in evaluated.items())
        reporter.line(f"epoch {session.epoch:>3}/{config.epochs}  {results}  {meter.rate():,.0f} samples/s")
        hooks.tenon_epoch_end(session=session, epoch=session.epoch, metrics=session.metrics)
        cause = _agree(session)[1]
        if cause is not None and session.epoch < config.epochs:
            return _interrupt(session, reporter, meter, cause)
        if session.epoch % max(config.checkpoint.every, 1) == 0 or session.epoch == config.epochs:
            checkpoint.save(session)
        meter.resume()
    checkpoint.finish(session)
    return _finish(session, reporter, meter)


def _train_epoch(
    session: Session,
    synchronizer: GradientSynchronizer | None,
    reporter: Reporter | SilentReporter,
    meter: _Meter,
) -> int | None:
    """Train the remaining steps of the epoch. If the ranks agreed to stop after the last one, return the
    number of the signal, or 0 after ``session.stop``; else None.

    This may differ from ``session.stopping``, as a signal may have arrived later, and on this rank only.
    """
    config, hooks = session.config, host().hook
    order = epoch_order(session, session.epoch)
    if session.position < len(order):
        hooks.tenon_epoch_begin(session=session, epoch=session.epoch + 1)
    while session.position < len(order):
        indices = order[session.position : session.position + config.batch_size]
        session.communicator.step = session.step
        hooks.tenon_step_begin(session=session, step=session.step)
        loss_sum, count = train_step(session, synchronizer, indices.tolist())
        if session.writer is not None:
            session.writer.check()
        (loss_sum, counted), cause = _agree(session, loss_sum, count)
        loss = float(loss_sum / counted)
        if not math.isfinite(loss):
            raise TrainingError(
                f"the loss is {loss} at step {session.step} (epoch {session.epoch + 1}). Lower optimizer.lr"
                f" ({session.optimizer.param_groups[0]['lr']}), or set clip_grad_norm; checkpoints are in"
                f" {session.folder}."
            )
        metrics = {
            "train_loss": loss,
            "lr": float(session.optimizer.param_groups[0]["lr"]),
            "epoch": session.epoch + 1,
        }
        if session.scheduler is not None and config.scheduler is not None and config.scheduler.per == "step":
            session.scheduler.step()
        hooks.tenon_step_end(session=session, step=session.step, metrics=metrics)
        session.step += 1
        session.position += len(indices)
        session.samples_seen += len(indices)
        meter.count(len(indices))
        reporter.advance(session.epoch + 1, loss)
        reporter.report_slow_ranks(session.step)
        if session.step % config.log.every == 0:
            reporter.report(metrics, session.step)
        if cause is not None:
            return cause
        steps = config.checkpoint.steps
        if steps is not None and session.step % steps == 0 and session.position < len(order):
            meter.pause()
            checkpoint.save(session)
            meter.resume()
    return None


def _agree(session: Session, *numbers: float) -> tuple[list[float], int | None]:
    """Return the sums of ``numbers`` over the ranks, and why the run ends now; collective.

    That is the number of a signal that has arrived on a rank, 0 if ``session.stop`` was called on one, or
    None.
    """
    signalled = [float(session.stopping == number) for number in signals.STOPPING]
    values = np.array([*numbers, float(session.reason is not None), *signalled], np.float64)
    totals = [float(v) for v in session.communicator.all_reduce(values, "sum", name="step").wait()]
    sums, (stopped, *signalled) = totals[: len(numbers)], totals[len(numbers) :]
    if any(signalled):
        session.stopping = next(n for n, a in zip(signals.STOPPING, signalled, strict=True) if a)
        return sums, session.stopping
    return sums, 0 if stopped else None


def _evaluate(session: Session) -> Metrics:
    """The results of the test samples by name, with those that plugins add."""
    hooks = host().hook
    hooks.tenon_evaluation_begin(session=session)
    results = evaluate(session, session.data.test)
    hooks.tenon_evaluation_end(session=session, metrics=results)
    try:
        return {f"test_{name}": float(value) for name, value in results.items()}
    except (TypeError, ValueError):
        raise TrainingError(
            f"metrics are numbers, and plugins have made {results} of them. Mend the plugin's"
            " tenon_evaluation_end; `tenon plugins` shows which plugins have one."
        ) from None


def _finish(session: Session, reporter: Reporter | SilentReporter, meter: _Meter) -> Metrics:
    """Report and return the final record of the metrics."""
    if "test_loss" not in session.metrics:  # no epoch was left to train
        session.metrics = {"epoch": session.epoch, **_evaluate(session), "samples_per_second": 0.0}
    final: Metrics = {
        "final": True,
        **session.metrics,
        "world_size": session.size,
        "samples_per_second": round(meter.rate(), 1),
        "seconds": round(meter.seconds(), 2),
        "samples_seen": session.samples_seen,
    }
    reporter.report(final, session.step)
    if "test_accuracy" in final:
        reporter.line(
            f"test accuracy {100 * final['test_accuracy']:.2f} %  after {meter.seconds():.1f} s of training"
        )
    reporter.line(f"run folder: {session.folder}")
    return final


def _interrupt(session: Session, reporter: Reporter | SilentReporter, meter: _Meter, number: int) -> Metrics:
    """Save the run after the signal ``number``, or with 0 after ``session.stop``; print how to resume it."""
    checkpoint.save(session)
    checkpoint.finish(session)
    reporter.report(
        {
            "interrupted" if number else "stopped": True,
            "epoch": session.epoch + 1,
            "samples_seen": session.samples_seen,
        },
        session.step,
    )
    cause = f"by {signals.name_of(number)} " if number else ""
    stopped = f"stopped {cause}after step {session.step}"
    if not number:
        given = session.communicator.all_gather_bytes((session.reason or "").encode(), name="reasons")
        reporter.line(f"stopped: {'; '.join(dict.fromkeys(text.decode() for text in given if text))}")
    if session.config.checkpoint.every:
        launcher = f"mpirun -n {session.size} " if session.size > 1 else ""
        reporter.line(f"{stopped}, which is saved in {session.folder}")
        reporter.line(f"resume with: {launcher}tenon train --resume {session.folder}")
    else:
        reporter.line(f"{stopped}; nothing is saved, as checkpoint.every is 0")
    if not number:
        return {"stopped": True, **session.metrics}
    return {"interrupted": True, "status": signals.exit_status(number)}


class _Meter:
    """Training throughput in samples per second over all ranks, excluding evaluation and checkpoints."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._samples = 0
        self._elapsed = 0.0
        self._started: float | None = time.perf_counter()

    def count(self, samples: int) -> None:
        """Add ``samples`` to those trained on."""
        self._samples += samples

    def pause(self) -> None:
        """Stop the clock."""
        if self._started is not None:
            self._elapsed += time.perf_counter() - self._started
            self._started = None

    def resume(self) -> None:
        """Start the clock again."""
        self._started = time.perf_counter()

    def seconds(self) -> float:
        """Seconds of training so far."""
        return self._elapsed + (0.0 if self._started is None else time.perf_counter() - self._started)

    def rate(self) -> float:
        """Samples per second so far."""
        return self._samples / max(self.seconds(), 1e-9)
