"""Selecting the communicator: a single process without a launcher, clear errors where MPI is missing or unsuitable."""

import subprocess
import sys

import pytest

from tenon.config import process_environment

LAUNCHED = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}


def python(code, **variables):
    of_launchers = ("PMI", "OMPI", "MPI_", "MPIR")
    torchrun = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    environment = {
        k: v for k, v in process_environment().items() if not k.startswith(of_launchers) and k not in torchrun
    }
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_without_a_launcher_there_is_one_rank_and_no_mpi():
    code = (
        "import sys, tenon.distributed as dist\n"
        "print(dist.get_rank(), dist.get_world_size(), dist.get_local_rank(), dist.get_backend())\n"
        "print('mpi4py' in sys.modules, sys.excepthook is sys.__excepthook__)"
    )
    done = python(code)

    assert done.stdout == "0 1 0 local\nFalse True\n", done.stderr


def test_the_variables_that_torchrun_sets_are_those_of_the_launcher():
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    code = f"import os, tenon; print(*(os.environ.get(name) for name in {names}))"
    assert python(code, **LAUNCHED).stdout == "1 2 1 2\n"
    assert python(code, **LAUNCHED, LOCAL_RANK="7").stdout == "1 2 7 2\n"  # the user's own stays
    assert python(code).stdout == "None None None None\n"


@pytest.mark.slow
def test_a_launched_rank_without_mpi4py_says_what_to_install():
    code = "import sys; sys.modules['mpi4py'] = None; import tenon.distributed as dist; dist.get_rank()"
    done = python(code, **LAUNCHED)

    assert done.returncode == 1
    assert "started by mpirun as rank 1 of 2, but mpi4py is not installed" in done.stderr
    assert "pip install 'tenon-platform[mpich]'" in done.stderr
    assert done.stderr.count("=== tenon: rank 1 of 2") == 1


def test_a_rank_whose_mpi4py_finds_no_library_says_so_and_what_to_set():
    code = (
        "import sys, importlib.abc\n"
        "class Absent(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'mpi4py.MPI':\n"
        "            raise ImportError('libmpi.so.12: cannot open shared object file')\n"
        "sys.meta_path.insert(0, Absent())\n"
        "import tenon.distributed as dist; dist.get_rank()"
    )
    done = python(code, **LAUNCHED)

    assert done.returncode == 1
    assert "mpi4py finds no MPI library that it can load (libmpi.so.12: cannot open" in done.stderr
    assert "MPI4PY_MPIABI=openmpi" in done.stderr


@pytest.mark.slow
def test_a_launcher_of_another_mpi_is_refused():
    code = "import tenon.distributed as dist; dist.get_rank()"
    done = python(code, SLURM_PROCID="1", SLURM_STEP_NUM_TASKS="2", SLURM_LOCALID="1")

    assert done.returncode == 1
    assert "srun started this process as rank 1 of 2, but the communicator 'mpi' found 1 rank" in done.stderr
    assert "srun --mpi=pmi2" in done.stderr


def test_torchrun_is_refused_with_the_command_to_use():
    code = "import tenon.distributed as dist; dist.get_rank()"
    done = python(code, TORCHELASTIC_RUN_ID="x", RANK="0", WORLD_SIZE="4")

    assert "mpirun -n 4 python" in done.stderr


@pytest.mark.slow
def test_an_unknown_communicator_is_refused():
    done = python("import tenon.distributed as dist; dist.get_rank()", TENON_COMMUNICATOR="carrier_pigeon")

    assert done.returncode == 1
    assert "carrier_pigeon" in done.stderr


@pytest.mark.slow
def test_the_local_communicator_can_be_asked_for():
    done = python(
        "import tenon.distributed as dist; print(dist.get_world_size())",
        TENON_COMMUNICATOR="local",
        **LAUNCHED,
    )

    assert done.stdout == "1\n", done.stderr


@pytest.mark.slow
@pytest.mark.mpi
def test_nothing_is_read_from_a_launcher_that_started_one_rank():
    from tenon.testing.suites.communicator import launch

    done = launch(
        1, ["-c", "import tenon.distributed as d, sys; print(d.get_backend(), 'mpi4py' in sys.modules)"]
    )

    assert done.stdout == "local False\n", done.stderr
