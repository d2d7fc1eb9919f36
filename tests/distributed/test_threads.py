"""Each rank's number of threads is set before NumPy is imported; the user's settings are kept."""

import os
import subprocess
import sys

import pytest

from tenon.distributed.processes.launcher import RankFacts
from tenon.distributed.processes.threads import VARIABLES, limit_threads, threads_per_rank
from tenon.errors import ConfigError
from tenon.testing.suites.communicator import launch

FACTS = RankFacts("mpirun", 0, 4, 0, 2)
CORES = len(os.sched_getaffinity(0))


def test_cores_are_divided_among_the_ranks_of_a_node():
    environment = {}

    assert limit_threads(FACTS, environment) == max(1, CORES // 2)
    assert environment["OMP_NUM_THREADS"] == environment["OPENBLAS_NUM_THREADS"] == str(max(1, CORES // 2))


def test_more_ranks_than_cores_get_one_thread_each():
    assert threads_per_rank(RankFacts("mpirun", 0, 999, 0, 999), {}) == 1


def test_slurm_grants_are_used_as_they_are():
    assert threads_per_rank(FACTS, {"SLURM_CPUS_PER_TASK": "3"}) == 3


@pytest.mark.parametrize(
    ("facts", "environment"),
    [
        (None, {}),
        (RankFacts("mpirun", 0, 1, 0, 1), {}),
        (RankFacts("mpirun", 0, 4, 0, 1), {}),
        (FACTS, {"OMP_NUM_THREADS": "7"}),
    ],
    ids=["alone", "one-rank", "one-rank-per-node", "set-by-user"],
)
def test_nothing_is_changed_where_there_is_nothing_to_share(facts, environment):
    before = dict(environment)

    assert limit_threads(facts, environment) is None
    assert environment == before


@pytest.mark.mpi
@pytest.mark.parametrize(
    "first", ["", pytest.param("import numpy; ", marks=pytest.mark.slow)], ids=["tenon-first", "numpy-first"]
)
def test_ranks_use_one_blas_thread_each_whatever_is_imported_first(first):
    code = (
        first + "import tenon, numpy as np\n"
        "a = np.ones((600, 600), np.float32)\n"
        "for _ in range(5): a @ a\n"
        "import os; print(f'{len(os.listdir(\"/proc/self/task\"))} threads\\n', end='')"
    )
    done = launch(max(2, CORES), ["-c", code], OMP_NUM_THREADS="")

    assert done.returncode == 0, done.stderr
    if not first:  # a pool that NumPy made before stays, but idle
        assert set(done.stdout.splitlines()) == {"1 threads"}


@pytest.mark.mpi
@pytest.mark.slow
def test_an_openblas_that_was_loaded_first_is_told_its_share():
    code = (
        "import numpy, ctypes\n"
        "import tenon\n"
        "from tenon.distributed.processes.threads import OPENBLAS_SETTERS\n"
        "path = next(l.split()[-1] for l in open('/proc/self/maps') if 'openblas' in l and '.so' in l)\n"
        "library = ctypes.CDLL(path)\n"
        "names = [n.replace('_set_', '_get_') for n in OPENBLAS_SETTERS]\n"
        "found = [getattr(library, n)() for n in names if hasattr(library, n)]\n"
        "print(f'{found}\\n', end='')"  # in one piece, or lines of ranks may mix
    )
    probe = "import numpy; print(any('openblas' in line for line in open('/proc/self/maps')))"
    if "True" not in subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True).stdout:
        pytest.skip("this NumPy has no OpenBLAS")

    done = launch(max(2, CORES), ["-c", code], OMP_NUM_THREADS="")

    assert done.stdout.split() == ["[1]"] * max(2, CORES), done.stdout + done.stderr


def test_tenon_num_threads_rules_all_variables():
    environment = {"TENON_NUM_THREADS": "3", "OMP_NUM_THREADS": "7"}

    assert limit_threads(FACTS, environment) == 3
    assert {environment[name] for name in VARIABLES} == {"3"}


@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5"])
def test_a_number_of_threads_that_is_none_is_refused(text):
    with pytest.raises(ConfigError, match=r"TENON_NUM_THREADS=.* is not a positive number"):
        limit_threads(None, {"TENON_NUM_THREADS": text})


@pytest.mark.slow
@pytest.mark.parametrize("first", ["", "import numpy; "], ids=["tenon-first", "numpy-first"])
def test_tenon_num_threads_holds_in_a_single_process(first):
    code = first + "import tenon; print(tenon.get_num_threads(), tenon.config.DECIDED['threads'])"
    environment = {**os.environ, "TENON_NUM_THREADS": "1", "OMP_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)

    assert done.stdout.split() == ["1", "TENON_NUM_THREADS"], done.stderr
