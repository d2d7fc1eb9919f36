"""``tenon compress``: prune and quantize the model of a finished run, and report the cost and the gain."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import click

from tenon import errors, save
from tenon.data.dataset import Source
from tenon.extend import Nested, Session, Tensor, replacing, resolve, runs
from tenon.nn.criterion import Criterion
from tenon.nn.module import Module
from tenon.nn.utils.prune import custom_from_mask
from tenon_compress.prune import compact, mask_channels
from tenon_compress.prune.compaction import bake_masks
from tenon_compress.quantize import quantize, quantize_within
from tenon_compress.receipt import Receipt, evaluating, receipt_of

#: The batch size and the number of batches that are run for examples, gradients and calibration.
_BATCH, _BATCHES = 32, 8
#: Errors that are printed without a traceback.
_REFUSALS = (
    errors.CheckpointError,
    errors.ConfigError,
    errors.DeviceError,
    errors.ModuleTypeError,
    errors.PluginNotFoundError,
    errors.PruningError,
    errors.QuantizationError,
    errors.TrainingError,
)
#: The file names of the result, in the folder of the compressed run.
MODEL, RECEIPT = "model.safetensors", "receipt.txt"


def _sizes(context: click.Context, parameter: click.Parameter, text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise click.BadParameter(f"{text!r} is not a list of batch sizes such as 1,32.")
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
    "--criterion",
    default="Magnitude",
    show_default=True,
    metavar="NAME",
    help="The criterion by which they are chosen.",
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
    help="Leave layers unquantized until --quantize loses at most so many percentage points of accuracy.",
)
@click.option("--leave-slow", is_flag=True, help="Leave layers unquantized that --quantize makes slower.")
@click.option(
    "--data",
    metavar="MODULE:FUNCTION",
    help="The data to train on, calibrate and evaluate with; the run's own by default.",
)
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override one setting of that training."
)
@click.option(
    "--batch-sizes", default="1,32", show_default=True, callback=_sizes, help="Batch sizes to time."
)
@click.option(
    "--trust", is_flag=True, help="Import the modules that the run names, even if it is from elsewhere."
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder; RUN/compressed by default. tenon export takes another one with --run RUN.",
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
    trust: bool,
    output: Path | None,
) -> None:
    """Make the model of a finished RUN smaller: prune, train again, quantize.

    RUN is the folder that `tenon train` printed. Training after pruning repeats the run's settings over
    fewer epochs, its schedule included (Renda et al., 2020). Channels that the run has masked ([prune]) are
    removed in any case. The smaller model and its receipt go to RUN/compressed.
    """
    try:
        if runs.is_launched():
            raise errors.ConfigError("tenon compress runs in one process; start it without a launcher.")
        if scheme is None and (points is not None or leave_slow):
            raise errors.ConfigError("--within and --leave-slow apply to --quantize: pass it a scheme too.")
        if share is not None:
            resolve("pruners", criterion)  # so that a wrong name is found before the training
        if scheme is not None:
            resolve("quantizers", scheme)
        folder, session, original, masks, channels = _open_run(run, data, overrides, epochs, output, trust)
        if share is None and scheme is None and not channels:
            raise errors.ConfigError(
                "nothing to do: pass --prune 0.5, --quantize int8-dynamic, or both."
                + (" The run has masked single weights, which stay where they are as zeros." if masks else "")
            )
        accuracy_of = _accuracy_function(session)
        if points is not None and accuracy_of is None:
            raise errors.ConfigError(
                "--within limits the loss of accuracy, and the loss of this run is not that of a classifier,"
                " so that no accuracy is known. Leave it out."
            )
        _mask_as_before(session.model, masks)
        if share is not None:
            _prune(session, share, criterion, batch_sizes)
        elif channels:
            compact(session.model, _example(session), batch_sizes=batch_sizes)
        if masks:
            bake_masks(session.model)  # those of single weights
        receipt: Receipt | None = None
        if scheme is not None:
            click.echo(f"Quantizing: {scheme}")
            receipt = _quantize(session, scheme, points, leave_slow, batch_sizes, accuracy_of)
        if share is not None or channels or receipt is None:
            click.echo(f"In all, from the model of {folder}:")
            receipt = receipt_of(
                original,
                session.model,
                _example(session),
                batch_sizes=batch_sizes,
                data=accuracy_of,
                notes=() if receipt is None else receipt.notes,
            )
            receipt.show()
        _save(session, receipt)
    except _REFUSALS as error:
        runs.refuse(error)
    click.echo(f"compressed model: {session.folder / MODEL}")
    click.echo("read it with: tenon.compress.load(model, tenon.load(FILE)), the model as its class makes it")


def _open_run(
    run: Path,
    data: str | None,
    overrides: tuple[str, ...],
    epochs: int,
    output: Path | None,
    trust: bool,
) -> tuple[Path, Session, Module, dict[str, Tensor], bool]:
    """The run's folder, a session that trains its model further, a copy of that model, the masks of the run,
    and whether they are of channels."""
    folder, saved = runs.find(run, trust=trust, replaced=() if data is None else ("data",))
    settings = {} if data is None else {"data": data, "data_options": {}}
    session = runs.reopen(
        folder,
        saved,
        folder / "compressed" if output is None else output,
        settings=settings,
        overrides=(f"epochs={epochs}", "checkpoint.every=0", *overrides),
    )
    masks = runs.masks_of(saved)
    channels = bool(masks) and json.loads(saved["config"])["prune"]["what"] == "channels"
    return folder, session, copy.deepcopy(session.model), masks, channels


def _mask_as_before(model: Module, masks: Mapping[str, Tensor]) -> None:
    """Mask what the run has masked, so that it stays zero in training and is removed."""
    for path, mask in masks.items():
        owner, _, name = path.rpartition(".")
        custom_from_mask(model.get_submodule(owner), name, mask)


def _prune(session: Session, share: float, criterion: str, batch_sizes: tuple[int, ...]) -> None:
    """Mask channels, train, and remove what is masked; AgreedExit if a signal ends the training."""
    method = resolve("pruners", criterion)
    if isinstance(method, type) and issubclass(method, Criterion) and method.needs_gradient:
        with evaluating(session.model):  # so that running statistics of batch norms do not change
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
    accuracy_of: Callable[[Module], float] | None,
) -> Receipt | None:
    """Quantize the session's model, all of it or as far as the options allow; return the receipt."""
    calls = [(inputs,) for inputs, _ in _batches(session, session.data.train)]
    example = _example(session)
    if points is None and not leave_slow:
        quantized = quantize(
            session.model, scheme, calls, example=example, data=accuracy_of, batch_sizes=batch_sizes
        )
    else:
        most_lost = None if points is None else points / 100
        quantized = quantize_within(
            session.model, scheme, calls, example=example, data=accuracy_of, batch_sizes=batch_sizes,
            most_lost=most_lost, keep_slow=not leave_slow,
        )  # fmt: skip
    session.model = quantized.model
    return quantized.receipt


def _batches(session: Session, dataset: Source[object]) -> Iterator[tuple[Nested, Nested]]:
    """Yield the inputs and targets of the first batches."""
    return runs.batches(session, dataset, _BATCH, _BATCHES)


def _example(session: Session) -> tuple[Nested]:
    inputs, _ = next(_batches(session, session.data.test))
    return (inputs,)


def _accuracy_function(session: Session) -> Callable[[Module], float] | None:
    """Return a function that computes a model's accuracy on the test data; None unless it is a classifier."""
    if not runs.classifies(session):
        return None

    def accuracy(model: Module) -> float:
        metrics = runs.evaluate(session, session.data.test, model)
        if "accuracy" not in metrics:
            raise errors.TrainingError("no target of the test data counts, so nothing can be right or wrong.")
        return metrics["accuracy"]

    return accuracy


def _save(session: Session, receipt: Receipt) -> None:
    """Write the model and its receipt to the session's folder: both, or on an error neither."""
    try:
        with replacing(session.folder / RECEIPT) as file:
            file.write(f"{receipt}\n".encode())
            save(session.model.state_dict(), session.folder / MODEL)
    except errors.CheckpointWriteError:
        raise
    except OSError as error:
        raise errors.CheckpointWriteError(
            f"the smaller model is not saved: {error}. Give another folder by --output."
        ) from error
