"""Plans of runs whose ranks have parts of the model: each mesh is tried on its ranks for some steps."""

from __future__ import annotations

import json
import resource
from collections.abc import Sequence

import click
from rich.markup import escape
from rich.table import Table

from tenon.errors import ConfigError
from tenon.extend import run_parts
from tenon_plan.plan import meshes
from tenon_plan.plan.memory import available
from tenon_plan.plan.meshes import Tried
from tenon_plan.plan.quantities import duration, size

MOST = 16
"""The largest number of ranks that are started without ``--mpirun``."""


def plan(
    config: run_parts.RunConfig,
    ranks: int,
    launcher: str | None,
    limit: float | None,
    every_mesh: bool,
    as_json: bool,
) -> None:
    """Print what a step takes on the configured mesh, or ``every_mesh``, and which one to choose.

    ``limit`` is the memory that a rank may take, in bytes; by default its share of what is available here, or
    the limit of this process if that is lower.
    """
    if launcher is None and ranks > MOST:
        raise ConfigError(
            f"-n {ranks}: a model that is divided is planned on all its ranks, and at most {MOST} are started"
            ' here. Plan on the nodes of the job, as in --mpirun "mpirun -f hosts".'
        )
    command = run_parts.find_launcher(launcher)
    most = _limit(ranks) if limit is None else int(limit)
    batch = config.batch_size
    if every_mesh:
        progress = (
            (lambda tried: None) if as_json else (lambda tried: click.echo(_line(tried, batch), err=True))
        )
        tried = meshes.try_all(config, ranks, command, progress)
    else:
        tried = [meshes.attempt(config, run_parts.mesh_sizes(config, ranks), ranks, command)]
        if tried[0].problem:
            raise ConfigError(f"{tried[0].name}: {tried[0].problem}")
    chosen = meshes.choose(tried, most) if every_mesh else tried[0]
    if as_json:
        document = {
            "name": config.recipe or config.model,
            "ranks": ranks,
            "batch_size": batch,
            "memory_limit": most,
            "meshes": [each.plain() for each in tried],
            "chosen": chosen.sizes,
        }
        click.echo(json.dumps(document, indent=2))
        return
    _show(config, ranks, tried, chosen, most)


def _limit(ranks: int) -> int:
    """The bytes that each of ``ranks`` ranks on this machine may take."""
    own, _ = resource.getrlimit(resource.RLIMIT_AS)
    shared = available() // ranks
    return shared if own == resource.RLIM_INFINITY else min(own, shared)


def _line(tried: Tried, batch: int) -> str:
    if tried.problem:
        return f"{tried.name}: {tried.problem}"
    return f"{tried.name}: {duration(tried.seconds)} a step, {batch / tried.seconds:,.0f} samples/s"


def _show(config: run_parts.RunConfig, ranks: int, tried: Sequence[Tried], chosen: Tried, limit: int) -> None:
    screen = run_parts.Screen()
    name, count = config.recipe or config.model or "", chosen.result["parameters"]
    screen.print(
        f"{escape(name)}: {count:,} parameters, batch of {config.batch_size}, {ranks} ranks",
        soft_wrap=True,
    )
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("mesh")
    for title in ("step", "samples/s", "memory of a rank"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("")
    for each in sorted(tried, key=lambda each: each.seconds):
        if each.problem:
            table.add_row(each.name, "", "", "", escape(each.problem))
            continue
        remark = "" if each.peak <= limit else f"more than {size(limit)}"
        if each is chosen and len(tried) > 1:
            remark = "fastest that fits"
        rate = f"{config.batch_size / each.seconds:,.0f}"
        table.add_row(each.name, duration(each.seconds), rate, size(each.peak), remark)
    screen.print(table)
    screen.print("[bold]sources and assumptions[/]")
    screen.print(
        f"- Each mesh ran here on {ranks} ranks: the median of its steps, and the largest peak of a rank,"
        " with what it shares with others.",
        soft_wrap=True,
    )
    screen.print(f"- A rank may take {size(limit)} (--memory).", soft_wrap=True)
    if len(tried) > 1:
        sizes = ", ".join(f"{key} = {value}" for key, value in chosen.sizes.items() if value > 1)
        screen.print(f"[bold]parallel = {{{escape(sizes)}}}[/]" if sizes else "one rank", soft_wrap=True)
