"""Create the process's communicator: local without a launcher, otherwise from a plugin, by default MPI.

``mpirun -n 4 python train.py`` is enough; no address, port or rank is configured. The hook
``tenon_make_communicator`` of a plugin comes first; else ``TENON_COMMUNICATOR`` names one, else a launched
process uses "mpi". Creation also installs failure handling: see ``failure.py``.
"""

from __future__ import annotations

import contextlib
from typing import cast

from tenon.config import Config, process_environment
from tenon.distributed.communication import world
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.communication.local import LocalCommunicator
from tenon.distributed.processes import failure, monitor_connection, siblings, watchdog
from tenon.distributed.processes.heartbeats import create_table
from tenon.distributed.processes.launcher import detect
from tenon.errors import LaunchError

LOCAL = "local"
DEFAULT = "mpi"


def launch(config: Config | None = None) -> Communicator:
    """Return the process's communicator, created at the first call."""
    with world._lock:
        existing = world.current()
        if existing is not None:
            return existing
        communicator = _create(config)
        if communicator.size > 1:
            adopt(communicator, config)
        else:
            world.set_process_communicator(communicator)
        return communicator


def adopt(communicator: Communicator, config: Config | None = None) -> None:
    """Set the process's communicator, with failure hooks and a watchdog; all its ranks must call this."""
    guard = failure.attach(communicator, process_environment())
    if guard.watchdog is not None:
        guard.watchdog.stop()
    guard.watchdog = None
    if isinstance(guard.monitor, monitor_connection.MonitorConnection):
        guard.monitor.stop()
    guard.monitor = None
    if communicator.size > 1:
        table = create_table(communicator, communicator.node)
        settings = config or Config.from_environment()
        early, guard.early = guard.early, None
        guard.monitor = monitor_connection.start(communicator, table, early, watchdog.limit_in(settings))
        guard.watchdog = watchdog.start(communicator, guard.fail, settings, table)
    world.set_process_communicator(communicator)


def _create(config: Config | None) -> Communicator:
    environment = process_environment()
    facts = detect(environment)
    name = (config or Config.from_environment()).communicator
    if facts is None and "TORCHELASTIC_RUN_ID" in environment:
        rank, size = environment.get("RANK", "?"), environment.get("WORLD_SIZE", "?")
        raise LaunchError(
            f"torchrun started this process as rank {rank} of {size}, but ranks communicate by MPI here. "
            f"Start with: mpirun -n {size} python ..."
        )
    from tenon.plugins.manager import host
    from tenon.plugins.registry import resolve

    configuration = config or host().config
    created = host().hook.tenon_make_communicator(config=configuration)
    if created is None:
        if name is None:
            name = LOCAL if facts is None or facts.size == 1 else DEFAULT
        if name == LOCAL:
            created = LocalCommunicator()
        else:
            limit = watchdog.limit_in(configuration)
            watching = (
                contextlib.nullcontext() if facts is None else siblings.watching(facts, environment, limit)
            )
            with watching:
                created = resolve("communicators", name)()
    communicator = cast(Communicator, created)
    if facts is not None and facts.size != communicator.size and name != LOCAL:
        raise LaunchError(
            f"{facts.launcher} started this process as rank {facts.rank} of {facts.size}, but the "
            f"communicator {communicator.name!r} found {communicator.size} rank(s). The launcher and the MPI "
            "library do not match: use the mpirun of the installed MPI, or srun --mpi=pmi2."
        )
    return communicator
