"""``tenon train``: run a recipe or a configuration file, alone or under ``mpirun``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from tenon.distributed.failure import AgreedExit
from tenon.distributed.launch import launch
from tenon.distributed.objects import encode
from tenon.distributed.startup import launched
from tenon.errors import (
    CheckpointError,
    CommunicatorError,
    ConfigError,
    DeviceError,
    PluginError,
    TenonError,
    TrainingError,
)
from tenon.training import checkpoint, config, loop
from tenon.training.recipe import Recipe, recipe_named

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
    "--resume", type=click.Path(path_type=Path), metavar="RUN", help="Go on with a run folder or checkpoint."
)
@click.option("--show-config", is_flag=True, help="Print the resolved configuration and stop.")
def train(what: str | None, overrides: tuple[str, ...], resume: Path | None, show_config: bool) -> None:
    """Train a recipe (see `tenon plugins`) or the model of a TOML file.

    Under `mpirun -n N` the batch of each step is shared by N ranks; without a launcher there is one.
    """
    try:
        resolved, recipe = _resolve(what, overrides, resume)
        if show_config:
            click.echo(json.dumps(resolved.model_dump(mode="json"), indent=2))
            return
        session = loop.open_session(resolved, recipe, resume)
    except (ConfigError, CheckpointError, DeviceError, TrainingError) as error:
        _refuse(error)
    result = loop.run(session)
    if result.get("interrupted"):
        raise AgreedExit(loop.INTERRUPTED)


def _resolve(
    what: str | None, overrides: tuple[str, ...], resume: Path | None
) -> tuple[config.RunConfig, Recipe | None]:
    layers: list[dict[str, Any]] = []
    if resume is not None:
        if what is not None:
            raise ConfigError(f"--resume takes its configuration from the run; leave out {what!r}.")
        saved = json.loads(checkpoint.read(checkpoint.find(resume))["config"])
        layers.append({k: v for k, v in saved.items() if v is not None})
        name = saved.get("recipe")
    elif what is None:
        raise ConfigError(
            "name a recipe or a configuration file, e.g. `tenon train digits`; `tenon train --help` says"
            " more."
        )
    elif what.endswith(".toml"):
        layers.append(config.read_file(Path(what)))
        name = layers[0].get("recipe")
    else:
        name = what
        layers.append({"recipe": what})
    recipe = None
    if name is not None:
        recipe = recipe_named(name)
        layers.insert(0, dict(recipe.defaults))
    layers += [config.read_override(text) for text in overrides]
    return config.resolve(layers), recipe


def _refuse(error: TenonError) -> NoReturn:
    """One clear line instead of a traceback, from rank 0 if all ranks have one.

    ``sys.exit`` would end the job at once and report a failing rank, perhaps before rank 0 has printed.
    ``AgreedExit`` leaves in peace; it needs to be sure that every rank does.
    """
    if launched() is None:
        click.echo(f"Error: {error}", err=True)
        raise SystemExit(REFUSED)
    try:
        communicator = launch()
        communicator.all_gather_bytes(encode(str(error)), name="refusal")
    except (CommunicatorError, PluginError):  # other ranks have no reason to stop, or cannot be asked
        click.echo(f"Error: {error}", err=True)
        sys.exit(REFUSED)
    if communicator.rank == 0:
        click.echo(f"Error: {error}", err=True)
    raise AgreedExit(REFUSED)
