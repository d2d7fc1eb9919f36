"""``tenon train``: run a recipe or a configuration file, alone or under ``mpirun``."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import NoReturn

import click

from tenon.distributed import elastic
from tenon.distributed.communication.objects import decode, encode
from tenon.distributed.processes.failure import AgreedExit
from tenon.distributed.processes.launch import launch
from tenon.distributed.processes.launcher import launched
from tenon.errors import (
    CheckpointError,
    CommunicatorError,
    ConfigError,
    DeviceError,
    PluginError,
    RankFailedError,
    TenonError,
    TrainingError,
)
from tenon.training import checkpoint, config, inject, lock, loop, signals
from tenon.training.layers import Table, in_one_line, is_file, read_file, read_override, shortened
from tenon.training.recipe import Recipe, recipe_named
from tenon.training.session import Metrics, Session
from tenon.training.trust import IMPORTED, Trust

REFUSED = 2


@click.command()
@click.argument("what", required=False, metavar="[RECIPE | FILE.toml]")
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override one setting, e.g. optimizer.lr=0.01.",
)
@click.option(
    "--resume", type=click.Path(path_type=Path), metavar="RUN", help="Resume a run folder or a checkpoint."
)
@click.option(
    "--run",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="The run folder: resumed if it has checkpoints, else created.",
)
@click.option(
    "--elastic", "is_elastic", is_flag=True, help="Continue with fewer ranks if one is killed. Experimental."
)
@click.option("--profile", is_flag=True, help="Write traces of some steps to the run folder; see [profile].")
@click.option(
    "--trust", is_flag=True, help="Import whatever a checkpoint names, though it was written elsewhere."
)
@click.option(
    "--inject",
    "faults",
    multiple=True,
    metavar="FAULT",
    help='A fault on purpose, e.g. "rank=2 step=50 kill"; also stop, crash, exit=3, error, hang, slow=0.1,'
    " slow-data=0.1.",
)
@click.option("--show-config", is_flag=True, help="Print the resolved configuration and stop.")
def train(
    what: str | None,
    overrides: tuple[str, ...],
    resume: Path | None,
    folder: Path | None,
    is_elastic: bool,
    profile: bool,
    trust: bool,
    faults: tuple[str, ...],
    show_config: bool,
) -> None:
    """Train a recipe (see `tenon plugins`) or the model of a TOML file.

    With --resume a FILE.toml only confirms which code the run may import; its settings are those of the
    run, changed by --set. Under `mpirun -n N` the batch of each step is divided among N ranks; without a
    launcher there is one rank.
    """
    signals.keep_early()
    with contextlib.ExitStack() as stack:
        try:
            injected = [inject.parse(text) for text in faults]
            if resume is not None and what is not None and not is_file(what):
                raise ConfigError(f"--resume takes its configuration from the run; leave out {what!r}.")
            resumed = _resumed(resume, folder, trust_in(what, overrides, trust), locked=not show_config)
            resolved, recipe = resolve(what, overrides, resumed, profile)
            if show_config:
                click.echo(json.dumps(resolved.model_dump(mode="json"), indent=2))
                return
            if is_elastic:
                _check_elastic(resolved)
            if injected:
                stack.enter_context(inject.injecting(injected, launch().rank, launch().size))
            session = loop.open_session(resolved, recipe, resumed, folder)
        except (ConfigError, CheckpointError, DeviceError, TrainingError) as error:
            refuse(error)
        result = _run_elastic(session, recipe) if is_elastic else loop.run(session)
    if result.get("interrupted"):
        raise AgreedExit(result["status"])


def _check_elastic(resolved: config.RunConfig) -> None:
    """ConfigError if the run cannot continue with the ranks that are left."""
    if (reason := elastic.missing()) is not None:
        raise ConfigError(f"--elastic: {reason}")
    if resolved.parallel.divides or resolved.parallel.auto:
        raise ConfigError(
            "--elastic: the ranks that are left have only parts of the model ([parallel]). Use `tenon"
            " launch --max-restarts`, which starts all ranks again from the last checkpoint."
        )


def _run_elastic(session: Session, recipe: Recipe | None) -> Metrics:
    """Run to the end; whenever ranks are killed, the survivors resume from the last checkpoint."""
    resolved, folder, size = session.config, session.folder, session.size
    current: Session | None = session
    while True:
        try:
            if current is None:
                saved = _resumed(None, folder, Trust(replaced=IMPORTED))  # ``resolved`` has been checked
                current = loop.open_session(resolved, recipe, saved, folder)
            return loop.run(current)
        except RankFailedError:
            current = None
            communicator = elastic.shrink()
            if communicator.rank == 0:
                click.echo(
                    f"{communicator.size} of {size} ranks are left, and resume from the last checkpoint"
                )
            size = communicator.size


def trust_in(what: str | None, overrides: tuple[str, ...], everything: bool = False) -> Trust:
    """What a checkpoint may import: the names of the user's configuration file and of ``--set``."""
    layers = [read_file(Path(what))] if what is not None and is_file(what) else []
    return Trust.of(layers, [read_override(text) for text in overrides], everything)


def _resumed(
    resume: Path | None, folder: Path | None, trust: Trust, locked: bool = True
) -> checkpoint.Resumed | None:
    """The run folder, locked before it is read, and the checkpoint to resume from; None for a new run."""
    if resume is not None and folder is not None:
        raise ConfigError("--resume names the folder of the run already; leave out --run.")
    if folder is not None:
        # Rank 0 decides: the others may not see the folder, or see it later.
        answers = launch().all_gather_bytes(encode(checkpoint.has_checkpoints(folder)), name="run folder")
        resume = folder if decode(answers[0]) else None
    if resume is None:
        return None
    if locked:
        answers = launch().all_gather_bytes(
            encode(str(checkpoint.folder_of(resume)) if resume.exists() else ""), name="run folder"
        )
        if found := decode(answers[0]):  # ``fetch`` refuses what is not there
            lock.hold(launch(), Path(found))
    return checkpoint.fetch(launch(), resume, trust)


def resolve(
    what: str | None,
    overrides: tuple[str, ...],
    resumed: checkpoint.Resumed | None,
    profile: bool = False,
) -> tuple[config.RunConfig, Recipe | None]:
    """The validated configuration, and its recipe if it names one, from the arguments of a command."""
    layers: list[Table] = []
    if resumed is not None:
        saved = json.loads(resumed[1]["config"])
        layers.append({k: v for k, v in saved.items() if v is not None})
        name = layers[0].get("recipe")
    elif what is None:
        raise ConfigError(
            "name a recipe or a configuration file, e.g. `tenon train digits`; `tenon train --help` says"
            " more."
        )
    elif is_file(what):
        layers.append(read_file(Path(what)))
        name = layers[0].get("recipe")
    else:
        name = what
        layers.append({"recipe": what})
    recipe = None
    if name is not None:
        if not isinstance(name, str):
            raise ConfigError(f"recipe = {shortened(name)}: must be the name of a recipe, a string")
        recipe = recipe_named(name)
        layers.insert(0, dict(recipe.defaults))
    if profile:
        layers.append({"profile": {}})
    layers += [read_override(text) for text in overrides]
    return config.resolve(layers), recipe


def refuse(error: TenonError) -> NoReturn:
    """Exit with a one-line error instead of a traceback, printed by rank 0 if all ranks have one.

    ``sys.exit`` would end the job at once and report a failing rank, perhaps before rank 0 has printed.
    ``AgreedExit`` exits without a report; it requires that every rank does so.
    """
    line = f"Error: {in_one_line(str(error))}"
    if launched() is None:
        click.echo(line, err=True)
        raise AgreedExit(REFUSED)
    try:
        communicator = launch()
        communicator.all_gather_bytes(encode(line), name="refusal")
    except (CommunicatorError, PluginError):  # other ranks have no error, or cannot be reached
        click.echo(line, err=True)
        sys.exit(REFUSED)
    if communicator.rank == 0:
        click.echo(line, err=True)
    raise AgreedExit(REFUSED)
