"""``tenon compress``: prune and quantize the model of a finished run, and say what that cost and gained."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from tenon import save
from tenon.errors import (
    CheckpointError,
    CheckpointWriteError,
    ConfigError,
    DeviceError,
    ModuleTypeError,
    PluginNotFoundError,
    PruningError,
    QuantizationError,
    TrainingError,
)
from tenon.extend import Nested, Session, replacing, resolve, runs
from tenon.nn.masks import Criterion
from tenon.nn.module import Module
from tenon_compress.prune import compact, mask_channels
from tenon_compress.quantize import quantize, quantize_within
from tenon_compress.receipt import Receipt, evaluating, receipt_of

#: Samples of a batch and batches that are run for examples, gradients and calibration.
_BATCH, _BATCHES = 32, 8
#: What the result is called, in the folder of the compressed run.
MODEL, RECEIPT = "model.safetensors", "receipt.txt"


def _sizes(context: click.Context, parameter: click.Parameter, text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise click.BadParameter(f"{text!r} is no list of batch sizes such as 1,32.")
    return sizes


@click.command()
@click.argument("run", type=click.Path(path_type=Path), metavar="RUN")
@click.option(
    "--prune",
    "share",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    metavar="SHARE",
    help="Remove this share of the channels, heads and units, e.g. 0.5.",
)
@click.option(
    "--criterion", default="Magnitude", show_default=True, metavar="NAME", help="What says which of them."
)
@click.option(
    "--epochs", type=click.IntRange(0), default=3, show_default=True, help="Epochs of training after pruning."
)
@click.option(
    "--quantize",
    "scheme",
    metavar="SCHEME",
    help="int8, int8-dynamic, int4-weights, ...: see `tenon plugins`.",
)
@click.option(
    "--within",
    "points",
    type=click.FloatRange(0, 100),
    metavar="POINTS",
    help="Leave as many layers as they were as it takes to lose no more points of accuracy by --quantize.",
)
@click.option("--leave-slow", is_flag=True, help="Leave layers as they were that --quantize makes slower.")
@click.option(
    "--data", metavar="MODULE:FUNCTION", help="What to train on, calibrate with and judge by; the run's own."
)
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override one setting of that training."
)
@click.option(
    "--batch-sizes", default="1,32", show_default=True, callback=_sizes, help="Batch sizes that are timed."
)
@click.option(
    "--output", type=click.Path(path_type=Path, file_okay=False), help="Folder; RUN/compressed by default."
)
def compress(
    run: Path,
    share: float | None,
    criterion: str,
    epochs: int,
    scheme: str | None,
    points: float | None,
    leave_slow: bool,
    data: str | None,
    overrides: tuple[str, ...],
    batch_sizes: tuple[int, ...],
    output: Path | None,
) -> None:
    """Make the model of a finished RUN smaller: prune, train again, quantize.

    RUN is the folder that `tenon train` printed. Training after pruning repeats the run's settings over
    fewer epochs, its schedule included (Renda et al., 2020). The smaller model and its receipt go to
    RUN/compressed.
    """
    try:
        if runs.is_launched():
            raise ConfigError("tenon compress runs in one process; start it without a launcher.")
        if share is None and scheme is None:
            raise ConfigError("say how: --prune 0.5, --quantize int8-dynamic, or both.")
        if scheme is None and (points is not None or leave_slow):
            raise ConfigError("--within and --leave-slow are about --quantize: say what to quantize to.")
        if share is not None:
            resolve("pruners", criterion)  # a name that is wrong is not found out after the training
        if scheme is not None:
            resolve("quantizers", scheme)
        folder, session, original = _opened(run, data, overrides, epochs, output)
        judge = _judge(session)
        if points is not None and judge is None:
            raise ConfigError(
                "--within counts points of accuracy, and the loss of this run is no classifier's."
            )
        if share is not None:
            _prune(session, share, criterion, batch_sizes)
        receipt: Receipt | None = None
        if scheme is not None:
            click.echo(f"Quantizing: {scheme}")
            receipt = _quantize(session, scheme, points, leave_slow, batch_sizes, judge)
        if share is not None or receipt is None:
            click.echo(f"In all, from the model of {folder}:")
            receipt = receipt_of(
                original,
                session.model,
                _example(session),
                batch_sizes=batch_sizes,
                data=judge,
                notes=() if receipt is None else receipt.notes,
            )
            receipt.show()
        _save(session, receipt)
    except (
        CheckpointError,
        ConfigError,
        DeviceError,
        ModuleTypeError,
        PluginNotFoundError,
        PruningError,
        QuantizationError,
        TrainingError,
    ) as error:
        runs.refuse(error)
    click.echo(f"smaller model: {session.folder / MODEL}")
    click.echo("read it with: tenon.compress.load(model, tenon.load(FILE)), the model as its class makes it")


def _opened(
    run: Path, data: str | None, overrides: tuple[str, ...], epochs: int, output: Path | None
) -> tuple[Path, Session, Module]:
    """The folder of the run, what trains its model further, and a copy of the model as it is."""
    folder, saved = runs.find(run)
    settings = {} if data is None else {"data": data, "data_options": {}}
    session = runs.reopen(
        folder,
        saved,
        folder / "compressed" if output is None else output,
        settings=settings,
        overrides=(f"epochs={epochs}", "checkpoint.every=0", *overrides),
    )
    return folder, session, copy.deepcopy(session.model)


def _prune(session: Session, share: float, criterion: str, batch_sizes: tuple[int, ...]) -> None:
    """Mask, train, and remove what is masked; AgreedExit if a signal ends the training."""
    found = resolve("pruners", criterion)
    if isinstance(found, type) and issubclass(found, Criterion) and found.needs_gradient:
        with evaluating(session.model):  # so that no statistic of a batch norm moves
            for inputs, targets in _batches(session, session.data.train):
                runs.mean_loss(session, inputs, targets).backward()
    masked = mask_channels(session.model, _example(session), share, criterion)
    session.model.zero_grad()
    click.echo(f"Pruning: {masked} channels, heads and units by {criterion}")
    if session.config.epochs:
        runs.train(session)
    compact(session.model, _example(session), batch_sizes=batch_sizes)


def _quantize(
    session: Session,
    scheme: str,
    points: float | None,
    leave_slow: bool,
    batch_sizes: tuple[int, ...],
    judge: Callable[[Module], float] | None,
) -> Receipt | None:
    """Quantize the session's model, whole or as far as it pays; the receipt of that."""
    calls = [(inputs,) for inputs, _ in _batches(session, session.data.train)]
    example = _example(session)
    if points is None and not leave_slow:
        made = quantize(session.model, scheme, calls, example=example, data=judge, batch_sizes=batch_sizes)
    else:
        most = None if points is None else points / 100
        made = quantize_within(
            session.model, scheme, calls, example=example, data=judge, batch_sizes=batch_sizes,
            most_lost=most, keep_slow=not leave_slow,
        )  # fmt: skip
    session.model = made.model
    return made.receipt


def _batches(session: Session, dataset: Any) -> Iterator[tuple[Nested, Nested]]:
    """Inputs and targets of the first batches."""
    return runs.batches(session, dataset, _BATCH, _BATCHES)


def _example(session: Session) -> tuple[Nested]:
    inputs, _ = next(_batches(session, session.data.test))
    return (inputs,)


def _judge(session: Session) -> Callable[[Module], float] | None:
    """The share of test samples that a model gets right; None where the loss is no classifier's."""
    if not runs.classifies(session):
        return None

    def judged(model: Module) -> float:
        found = runs.evaluate(session, session.data.test, model)
        if "accuracy" not in found:
            raise TrainingError("no target of the test data counts, so nothing can be right or wrong.")
        return found["accuracy"]

    return judged


def _save(session: Session, receipt: Receipt) -> None:
    """The model and its receipt in the session's folder, where both appear or none."""
    try:
        with replacing(session.folder / RECEIPT) as file:
            file.write(f"{receipt}\n".encode())
            save(session.model.state_dict(), session.folder / MODEL)
    except CheckpointWriteError:
        raise
    except OSError as error:
        raise CheckpointWriteError(
            f"the smaller model is not saved: {error}. Give another folder by --output."
        ) from error
