"""The commands ``tenon export`` and ``tenon verify``: bundles of the models of finished runs."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Collection
from pathlib import Path

import click
from click.core import ParameterSource
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tenon import serialize
from tenon.engine.types import Nested
from tenon.errors import ConfigError, TenonError
from tenon.export import bundle as bundles
from tenon.export.capture import capture
from tenon.export.captured import CapturedGraph, Symbol
from tenon.export.naming import argument_names
from tenon.export.target import Target
from tenon.export.verify import verify as verify_bundle
from tenon.nn.layers.dropout import _DropoutNd
from tenon.plugins import registry
from tenon.serialize.checkpoint import is_checkpoint
from tenon.tensors.pytree import tree_flatten
from tenon.tensors.tensor import Tensor
from tenon.training import export_files, runs
from tenon.training.session import Session
from tenon.training.step import local_step

#: The runs of the test vectors, each a batch of other samples; of a training step they follow one another.
_RUNS, _STEPS = 3, 10
#: Options that files whose graph is captured have no use for, and those that a bundle has none for beside.
_OF_RUNS = frozenset({"train", "data", "origin", "trust"})
_OF_BATCHES = frozenset({"batch_size", "any_batch_size", "max_batch_size"})


@click.command()
@click.argument("run", metavar="RUN_OR_FILE", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--to", "targets", default="bundle", show_default=True, help="Some of bundle,numpy,c,onnx,stablehlo."
)
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="The folder to write.")
@click.option("--batch-size", default=1, show_default=True, type=click.IntRange(1), help="Of the input.")
@click.option("--train", is_flag=True, help="Export a training step: forward, backward and optimizer.")
@click.option("--any-batch-size", is_flag=True, help="Let the size of the batch change from run to run.")
@click.option("--max-batch-size", type=click.IntRange(1), help="Let it change up to this; C needs a limit.")
@click.option("--data", help="module:name of the data, where the run's own is not installed here.")
@click.option(
    "--run", "origin", type=click.Path(exists=True, path_type=Path), help="The run of a compressed model."
)
@click.option("--trust", is_flag=True, help="Import whatever the run names, though it was written elsewhere.")
@click.option("--overwrite", is_flag=True, help="Replace the folder if it exists.")
def export(
    run: Path,
    targets: str,
    output: Path,
    batch_size: int,
    train: bool,
    any_batch_size: bool,
    max_batch_size: int | None,
    data: str | None,
    origin: Path | None,
    trust: bool,
    overwrite: bool,
) -> None:
    """Write the model of RUN_OR_FILE to a folder that checks itself.

    RUN_OR_FILE is the folder of a finished run, one of its checkpoints, the folder or model.safetensors that
    `tenon compress` made of it (with --run RUN if that is elsewhere), a file of torch.export.save or
    torch.jit.save, or a bundle, which is written again for other targets. The folder has the graph, the
    weights, test vectors, and what each target needs: `tenon verify DIR` runs them.
    """
    try:
        if runs.is_launched():
            raise ConfigError("tenon export runs in one process; start it without a launcher.")
        if max_batch_size is not None and max_batch_size < batch_size:
            raise ConfigError(f"--max-batch-size {max_batch_size} is less than --batch-size {batch_size}.")
        chosen = _targets(targets)
        bundles.free_place(output, overwrite)
        model = None
        from_file = (run / bundles.MANIFEST).is_file() or export_files.has_graph(run)
        if (run / bundles.MANIFEST).is_file():
            _refuse_options_of_runs("a bundle", _OF_RUNS | _OF_BATCHES)
            graph, calls = export_files.of_bundle(run)
        elif from_file:
            _refuse_options_of_runs("a program or trace", _OF_RUNS)
            given = batch_size if _is_given("batch_size") else None
            graph, calls = export_files.graph_of(run, given, any_batch_size, max_batch_size)
        else:
            session = _opened(run, train, data, trust, origin)
            changes = any_batch_size or max_batch_size is not None
            graph, calls = _of_run(session, batch_size, train, changes, max_batch_size)
            model = None if train else session.model
        with export_files.blamed(run) if from_file else contextlib.nullcontext():
            folder = bundles.save(
                graph, output, targets=chosen, calls=calls, overwrite=overwrite, model=model
            )
    except TenonError as error:
        runs.refuse(error)
    click.echo(f"exported to {folder}; check it with: tenon verify {output}")


def _targets(names: str) -> list[Target]:
    """Return the targets of ``--to``; "bundle", which is always written, is none."""
    given = [name.strip() for name in names.split(",")]
    if not any(given):
        raise ConfigError("--to names no target: give bundle, or those of `tenon plugins`, such as c,numpy.")
    return [bundles.target_named(name) for name in dict.fromkeys(given) if name not in ("", "bundle")]


def _is_given(name: str) -> bool:
    return click.get_current_context().get_parameter_source(name) is not ParameterSource.DEFAULT


def _refuse_options_of_runs(what: str, names: Collection[str]) -> None:
    """Raise ConfigError for options of ``names``, which say how to capture: ``what`` is captured already."""
    for parameter in click.get_current_context().command.params:
        if parameter.name in names and _is_given(parameter.name):
            raise ConfigError(
                f"the graph of {what} is captured already; {parameter.opts[0]} needs the folder of the run."
            )


def _opened(run: Path, train: bool, data: str | None, trust: bool, origin: Path | None) -> Session:
    """Return a session with the model of a run, of a checkpoint, or of the compressed model of the run
    ``origin``, by default the one in whose folder it is."""
    settings: dict[str, object] = {"device": "cpu"}
    if data is not None:
        settings |= {"data": data, "data_options": {}}
    compressed = _compressed(run, origin)
    run_folder = run if compressed is None else origin or compressed.parent.parent
    folder, saved = runs.find(run_folder, trust=trust, replaced=() if data is None else ("data",))
    with tempfile.TemporaryDirectory(prefix="tenon-export-") as temporary:
        session = runs.reopen(folder, saved, Path(temporary) / "run", settings=settings)
    if compressed is not None:
        if train:
            raise ConfigError("a compressed model is not trained any more: leave out --train.")
        compress = registry.resolve("namespaces", "compress")
        session.model = compress.load(session.model, serialize.load(compressed))
    return session


def _compressed(run: Path, origin: Path | None) -> Path | None:
    """Return the file of a compressed model, given itself or its folder; None for runs and checkpoints.

    Files of both end in .safetensors: what is in them decides.
    """
    file = run if run.suffix == serialize.SAFETENSORS else run / "model.safetensors"
    if file is not run and (not file.is_file() or (run / "checkpoints").exists()):
        if origin is not None:
            raise ConfigError(
                f"--run names the run of a compressed model, and {run} is none: it has a run's checkpoints, "
                "or no model.safetensors. Leave --run out."
            )
        return None
    if file is run and is_checkpoint(serialize.load(file)):
        if origin is not None:
            raise ConfigError(f"{run} is a checkpoint, with its own class and data. Leave --run out.")
        return None
    if origin is None and not (file.parent.parent / "checkpoints").exists():
        raise ConfigError(
            f"{file} is a compressed model, whose class and data are read from the run that it comes from. "
            "Name that run by --run RUN, or move the folder into the run's."
        )
    return file


def _of_run(
    session: Session, batch_size: int, train: bool, any_batch_size: bool, most: int | None
) -> tuple[CapturedGraph, list[tuple[Nested, ...]]]:
    """Return the graph of a run's model or training step, and the arguments of test runs."""
    count = _STEPS if train else _RUNS
    dataset = session.data.train if train else session.data.test
    batches = list(runs.batches(session, dataset, batch_size, count))
    if not batches:
        raise ConfigError("the data has no samples for the test vectors; pass other data by --data.")
    batches = [each for each in batches if _size(each) == _size(batches[0])]
    function: Callable[..., Nested] = session.model.eval()
    calls = [(inputs,) for inputs, _ in batches]
    if train:
        session.model.train()
        _leave_dropout_out(session)
        function, calls = _step(session), [tuple(batch) for batch in batches]
    dynamic = None
    if any_batch_size:
        leaves, _ = tree_flatten((calls[0], {}))
        names = argument_names(function, calls[0], {})
        dynamic = {
            name: {0: "batch"}
            for name, leaf in zip(names, leaves, strict=True)
            if isinstance(leaf, Tensor) and leaf.ndim
        }
    graph = capture(function, *calls[0], train=train, dynamic=dynamic)
    if dynamic:
        symbol = graph.symbols["batch"] = graph.symbols["batch"].bounded(graph.symbols["batch"].least, most)
        calls += [] if train else _others(session, batch_size, symbol)
    return graph, calls


def _others(session: Session, batch_size: int, symbol: Symbol) -> list[tuple[Nested, ...]]:
    """Return the arguments of test runs with batches of other sizes: the least one, and a larger one."""
    larger = batch_size + 2 if symbol.most is None else min(batch_size + 2, symbol.most)
    sizes = (max(symbol.least, 1), larger)
    return [(inputs,) for size in sizes for inputs, _ in runs.batches(session, session.data.test, size, 1)]


def _size(batch: tuple[Nested, Nested]) -> int:
    _, targets = batch
    return len(targets) if isinstance(targets, Tensor) else 0


def _leave_dropout_out(session: Session) -> None:
    """Put dropout layers in eval mode: no other machine draws the same numbers."""
    layers = [name for name, module in session.model.named_modules() if isinstance(module, _DropoutNd)]
    for name in layers:
        session.model.get_submodule(name).eval()
    if layers:
        click.echo(f"dropout is left out of the step: {', '.join(layers)}")


def _step(session: Session) -> Callable[[Nested, Tensor], Tensor]:
    """Return a training step of the session."""

    def step(inputs: Nested, targets: Tensor) -> Tensor:
        return local_step(session, [(inputs, targets)])

    return step


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--target", "targets", multiple=True, help="Only this target; may be repeated.")
@click.option("--graph-only", is_flag=True, help="Run the graph by tenon, and no program of the bundle.")
@click.option("--require-all", is_flag=True, help="Fail if a target cannot be run on this machine.")
def verify(folder: Path, targets: tuple[str, ...], graph_only: bool, require_all: bool) -> None:
    """Run every target of the bundle FOLDER on its test vectors, and print a table.

    A bundle with a changed byte, a missing file or a foreign schema is refused. The programs in it are
    compiled and run, in a temporary folder: verify only bundles from a source that you trust, or use
    --graph-only. The exit status is 1 if any is off by more than the tolerance.
    """
    try:
        if graph_only and targets:
            raise ConfigError("--graph-only runs no target; leave out --target.")
        report = verify_bundle(folder, () if graph_only else targets or None)
    except TenonError as error:
        runs.refuse(error)
    table = Table("target", "result", "largest difference", "seconds", "reason")
    for verdict in report.verdicts:
        excess = "-" if verdict.excess is None else f"{verdict.excess:.3g} x tolerance"
        cells = (verdict.target, verdict.status, excess, f"{verdict.seconds:.2f}", verdict.reason)
        table.add_row(*map(escape, cells))  # a reason may name an extra: tenon-platform[jax]
    console = Console()
    console.print(table)
    click.echo(f"{report.runs} runs, tolerance {report.absolute:.3g} + {report.relative:.3g} x |output|")
    failed = [v for v in report.verdicts if v.status == "failed" or (require_all and v.status != "passed")]
    if failed:
        sys.exit(1)
