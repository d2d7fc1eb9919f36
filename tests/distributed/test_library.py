"""Which MPI library is loaded, and the variables that are set before it starts."""

import subprocess
import sys
from importlib import metadata

import pytest

from tenon_mpi.library import shorten_addresses

STEP = {"SLURM_STEP_NUM_NODES": "2", "PMI_FD": "11"}


@pytest.mark.parametrize(
    ("environment", "chosen"),
    [
        (STEP, "ofi"),
        ({**STEP, "MPIR_CVAR_CH4_NETMOD": "ucx"}, "ucx"),
        ({**STEP, "SLURM_STEP_NUM_NODES": "1"}, None),
        ({"SLURM_STEP_NUM_NODES": "2"}, None),
        ({"PMI_FD": "11"}, None),
    ],
    ids=["several nodes", "told otherwise", "one node", "another protocol", "mpirun"],
)
def test_only_the_ranks_of_srun_on_several_nodes_get_short_addresses(environment, chosen):
    if not any(metadata.distributions(name="mpich")):
        pytest.skip("the MPICH wheel is not installed")
    found = dict(environment)
    shorten_addresses(found)

    assert found.get("MPIR_CVAR_CH4_NETMOD") == chosen


ELSEWHERE = """
import mpi4py
from mpi4py import _mpiabi

mpi4py.rc.initialize = False
_mpiabi._dlopen_rpath = lambda: ["/nowhere"]  # as where pip put the library outside sys.prefix
from tenon_mpi.library import find_mpi

print(find_mpi().Get_library_version())
"""


@pytest.mark.slow
def test_a_wheels_library_is_found_where_mpi4py_does_not_look(monkeypatch):
    if not any(metadata.distributions(name="mpich")):
        pytest.skip("the MPICH wheel is not installed")
    monkeypatch.delenv("MPI4PY_LIBMPI", raising=False)

    def run():
        return subprocess.run([sys.executable, "-c", ELSEWHERE], capture_output=True, text=True, timeout=60)

    assert run().stdout.startswith("MPICH Version")

    monkeypatch.setenv("MPI4PY_LIBMPI", "/nowhere/libmpi.so")  # What was asked for is not replaced.
    assert "/nowhere/libmpi.so: cannot open" in run().stderr
