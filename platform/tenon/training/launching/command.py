"""The command ``tenon launch``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from tenon.distributed.replicas.shard_order import check_order
from tenon.errors import LaunchError, TenonError
from tenon.training import command, inject
from tenon.training.config import RunConfig
from tenon.training.launching.hosts import Launcher
from tenon.training.launching.places import Places
from tenon.training.launching.supervisor import Supervisor
from tenon.training.parallel.mesh import Sizes
from tenon.training.session import fresh_folder


class Target(NamedTuple):
    """What ``tenon launch`` runs on each rank; ``folder`` is the run folder, None for a script."""

    command: list[str]
    folder: Path | None
    unfit: Callable[[int], str | None]
    """Why a number of ranks does not fit; None for one that does."""


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "-n", "ranks", type=click.IntRange(1), metavar="N", help="Number of ranks; may be left out with --hosts."
)
@click.option(
    "--max-restarts", type=click.IntRange(0), default=0, metavar="K", help="Attempts after the first; 0."
)
@click.option(
    "--min-ranks",
    type=click.IntRange(1),
    metavar="A",
    help="After a rank was killed or stalled, or a host has gone, go on with fewer, down to A; by default N.",
)
@click.option(
    "--max-ranks",
    type=click.IntRange(1),
    metavar="B",
    help="Go on with more ranks, up to B, when hosts have room for them; by default N.",
)
@click.option(
    "--hosts",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Hosts, a line each as node1:4; read again while the job runs.",
)
@click.option(
    "--mpirun", "launcher", metavar="COMMAND", help='How ranks are started, e.g. "mpirun -iface eth1".'
)
@click.argument("target", metavar="SCRIPT.py | FILE.toml | RECIPE")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def launch(
    ranks: int | None,
    max_restarts: int,
    min_ranks: int | None,
    max_ranks: int | None,
    hosts: Path | None,
    launcher: str | None,
    target: str,
    arguments: tuple[str, ...],
) -> None:
    """Start N ranks, and start them again from the last checkpoint if they fail.

    A FILE.toml or RECIPE takes the arguments of `tenon train`; its ranks resume from the newest checkpoint
    of the run folder. A SCRIPT loads its own checkpoints; TENON_ATTEMPT is the number of the attempt, from 1.
    """
    try:
        low, high = _bounds(ranks, min_ranks, max_ranks, hosts)
        run = _target(target, arguments)
        started = Launcher(launcher) if hosts is not None or high != 1 else None
        places = Places(low, high, started, hosts, run.unfit)
    except TenonError as error:
        command.refuse(error)
    sys.exit(Supervisor(run.command, started, places, run.folder).run(max_restarts))


def _bounds(
    ranks: int | None, lowest: int | None, highest: int | None, hosts: Path | None
) -> tuple[int, int | None]:
    """The fewest and the most ranks; None for as many as the hosts have room for."""
    if hosts is None:
        if None not in (ranks, highest) and ranks != highest:
            raise LaunchError(
                f"-n {ranks} --max-ranks {highest}: on which hosts would more ranks run? Name a file of hosts"
                " with --hosts, or leave out --max-ranks."
            )
        ranks = ranks if highest is None else highest
        if ranks is None:
            raise LaunchError("how many ranks? Pass -n 4, or a file of hosts with --hosts.")
    high = ranks if highest is None else highest
    low = next(number for number in (lowest, ranks, 1) if number is not None)
    if high is not None and low > high:
        raise LaunchError(f"at least {low} ranks, at most {high}? Lower --min-ranks, or raise --max-ranks.")
    return low, high


def _target(target: str, arguments: Sequence[str]) -> Target:
    if target.endswith(".py"):
        if not os.path.isfile(target):
            raise LaunchError(f"the script {target!r} does not exist in {os.getcwd()}.")
        script = [sys.executable, "-m", "tenon.distributed", target, *arguments]
        return Target(script, None, lambda ranks: None)
    options = command.train.make_context("tenon launch", [target, *arguments]).params
    if options["resume"] is not None or options["show_config"]:
        raise LaunchError("tenon launch takes neither --resume nor --show-config; resume with --run FOLDER.")
    for fault in options["faults"]:
        inject.parse(fault)
    config = command.resolve(target, options["overrides"], None)[0]
    folder, extra = options["folder"], []
    if folder is None:
        folder = fresh_folder(config)
        extra = ["--run", str(folder)]
    train = [sys.executable, "-m", "tenon.cli", "train", target, *arguments, *extra]
    return Target(train, folder, lambda ranks: _unfit(config, ranks))


def _unfit(config: RunConfig, ranks: int) -> str | None:
    """Why the run cannot be divided among ``ranks`` ranks; None if it can, as far as is known before."""
    try:
        if config.parallel.auto:
            return None
        divided = config.parallel.divides
        sizes = Sizes.of(config.parallel, ranks) if divided else Sizes(1, ranks, 1, 1)
        if config.shards is not None:
            check_order(config.shards, sizes.data, sizes.shard)
    except TenonError as error:
        return str(error)
    return None
