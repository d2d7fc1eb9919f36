"""Conformance of communicators: subclass, name the communicator, and pytest runs every check on its ranks.

``communicator = "threaded"`` runs ranks as threads; for any other name, ranks are processes started by
``mpirun``, once for all checks of a size.
"""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pytest

from tenon.config import process_environment
from tenon.distributed.communication.local import LocalCommunicator
from tenon.distributed.communication.threaded import run_ranks
from tenon.distributed.processes.installed_programs import installed_program
from tenon.testing.suites.communicator_run import CHECKS

START_LIMIT = 300.0
"""The time limit of a job in seconds, which only a job that hangs exceeds."""
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
"""Variables that let Open MPI's ``mpirun`` start tests as root, and more ranks than cores."""


class CommunicatorSuite:
    """Every check of ``communicator_checks`` on each of ``sizes``.

    ::

        class TestMyCommunicator(CommunicatorSuite):
            communicator = "mine"
            sizes = (2, 4)
    """

    communicator: ClassVar[str] = "threaded"
    sizes: ClassVar[Sequence[int]] = (1, 2, 3, 4)
    settings: ClassVar[Sequence[tuple[str, str]]] = ()
    """Environment variables of the ranks, with their values."""

    @pytest.mark.parametrize("name", list(CHECKS))
    def test_communicator(self, name: str) -> None:
        """Run one check on every size."""
        for size in self.sizes:
            self.run(name, size)

    def run(self, name: str, size: int) -> None:
        """Run the check ``name`` on ``size`` ranks; override it for communicators that are started
        differently."""
        if self.communicator == "threaded":
            run_ranks(size, CHECKS[name])
        elif self.communicator == "local":
            CHECKS[name](LocalCommunicator())
        else:
            results = launch_checks(self.communicator, size, tuple(self.settings))
            assert results.get(name) == "", f"on {size} ranks: {results.get(name, 'not run')}"


@functools.cache
def launch_checks(
    communicator: str, size: int, settings: tuple[tuple[str, str], ...] = ()
) -> Mapping[str, str]:
    """Run all checks on real ranks; return name -> "" if it passed, else the failure."""
    # Texts; a type checker takes the names for those of any parameter of ``launch``.
    variables: Any = {"TENON_COMMUNICATOR": communicator, **dict(settings)}
    done = launch(size, ["-m", "tenon.testing.suites.communicator_run"], **variables)
    results = {}
    for line in done.stdout.splitlines():
        verdict, _, rest = line.partition(" ")
        name, _, problem = rest.partition(" ")
        if verdict in ("PASS", "FAIL"):
            results[name] = problem.replace("\\n", "\n")
    for name in CHECKS:
        results.setdefault(name, f"not run; the ranks ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return results


def launch(
    size: int, arguments: Sequence[str], *, timeout: float = START_LIMIT, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run ``python *arguments`` on ``size`` real ranks; skip the test if ``mpirun`` is not installed."""
    environment = {**process_environment(), "OMP_NUM_THREADS": "1", **OPEN_MPI, **variables}
    command = [find_mpirun(), "-n", str(size), sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment)


@functools.cache
def is_mpich() -> bool:
    """Whether ``find_mpirun`` returns that of MPICH."""
    done = subprocess.run([find_mpirun(), "--version"], capture_output=True, text=True)
    return "HYDRA" in done.stdout


def find_mpirun() -> str:
    """Return the ``mpirun`` of the environment, else of the system; skip the test if there is none."""
    path = installed_program("mpirun")
    if path is None:
        pytest.skip("needs mpirun: pip install 'tenon-platform[mpich]'")
    return path
