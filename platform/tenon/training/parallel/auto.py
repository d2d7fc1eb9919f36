"""Let `tenon plan` choose the mesh: ``parallel.auto``."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from pathlib import Path

import click
import numpy as np

from tenon.config import process_environment
from tenon.distributed.communication.communicator import Communicator
from tenon.distributed.communication.objects import decode, encode
from tenon.distributed.processes.installed_programs import installed_program
from tenon.errors import ConfigError
from tenon.training.config import RunConfig
from tenon.training.parallel.mesh import NAMES, Sizes

#: Seconds between looks for the choice: ranks that wait in a collective would disturb what is measured.
_PAUSE = 0.05


def with_mesh(config: RunConfig, communicator: Communicator) -> RunConfig:
    """``config`` with the sizes that rank 0 lets `tenon plan` choose, if it asks for that. Collective.

    Sizes that a run has chosen before are kept while they fit the number of ranks. ConfigError on all ranks
    if no mesh fits.
    """
    parallel = config.parallel
    if not parallel.auto or (parallel.data != -1 and _fits(config, communicator.size)):
        return config
    problem, sizes = "", dict.fromkeys(NAMES, 1)
    if communicator.size > 1:
        if communicator.rank == 0:
            problem, sizes = _ask(config, communicator.size)
        _wait(communicator)
        answers = communicator.all_gather_bytes(encode([problem, sizes]), name="mesh")
        problem, sizes = decode(answers[0])
    if problem:
        raise ConfigError(f"parallel.auto: {problem}")
    return config.model_copy(update={"parallel": parallel.model_copy(update=sizes)})


def _fits(config: RunConfig, ranks: int) -> bool:
    try:
        Sizes.of(config.parallel, ranks)
    except ConfigError:
        return False
    return True


def _ask(config: RunConfig, ranks: int) -> tuple[str, dict[str, int]]:
    """What is wrong, or the sizes that `tenon plan` chooses.

    Raises nothing that it can report: the other ranks sleep until this returns.
    """
    program = installed_program("tenon")
    if program is None:
        return "the command `tenon` was found neither next to this Python nor on the PATH.", {}
    try:
        with tempfile.TemporaryDirectory(prefix="tenon-auto-") as folder:
            path = Path(folder) / "config.json"
            path.write_text(config.model_dump_json())
            command = [program, "plan", str(path), "-n", str(ranks), "--meshes", "--json"]
            if config.parallel.memory is not None:
                command += ["--memory", config.parallel.memory]
            done = subprocess.run(command, capture_output=True, text=True, env=_without_launcher())
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["tenon plan printed nothing"]
            return lines[-1].removeprefix("Error: "), {}
        found = json.loads(done.stdout)
        sizes = {name: int(found["chosen"][name]) for name in NAMES}
    except (LookupError, OSError, ValueError) as error:
        return f"tenon plan cannot be asked: {error}", {}
    click.echo(f"parallel.auto: {Sizes(**sizes)}, of {len(found['meshes'])} meshes")
    return "", sizes


def _without_launcher() -> dict[str, str]:
    """The environment of this process, without what the launcher tells its ranks."""
    told = ("PMI_", "PMIX_", "OMPI_", "PRTE_", "MPI_", "HYDRA_", "SLURM_PROCID", "SLURM_LOCALID")
    return {name: value for name, value in process_environment().items() if not name.startswith(told)}


def _wait(communicator: Communicator) -> None:
    """Sleep on all other ranks until rank 0 is here."""
    word = np.zeros(1, np.int8)
    if communicator.rank == 0:
        for rank in range(1, communicator.size):
            communicator.send(word, rank, name="mesh is chosen").wait()
        return
    received = communicator.receive(word, 0, name="mesh is chosen")
    while not received.is_completed():
        time.sleep(_PAUSE)
    received.wait()
