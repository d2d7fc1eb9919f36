"""Data parallel on real ranks: the same weights on every rank, and those of one rank with the whole batch."""

from pathlib import Path

import numpy as np
import pytest

from tenon.testing.suites.communicator import launch

PROGRAMS = Path(__file__).parent / "programs"

pytestmark = pytest.mark.mpi


def train(size):
    done = launch(size, [str(PROGRAMS / "train_two_layers.py")])
    assert done.returncode == 0, done.stderr
    ranks, different, *weights = done.stdout.split()
    assert (int(ranks), int(different)) == (size, 1)
    return np.array([float(weight) for weight in weights])


@pytest.mark.slow  # that of two ranks runs with the tests of training
def test_three_ranks_train_like_one():
    # Two and four, with all features: test_features_on_ranks.py.
    np.testing.assert_allclose(train(3), train(1), rtol=1e-7, atol=1e-8)


@pytest.mark.slow
def test_a_rank_that_skips_a_step_is_caught_with_both_sides_named():
    code = (
        "import numpy as np\n"
        "from tenon.distributed import get_communicator\n"
        "c = get_communicator()\n"
        "for c.step in range(3):\n"
        "    if (c.step, c.rank) != (1, 1):\n"
        "        c.all_reduce(np.ones(2), name='fc.weight')\n"
    )
    done = launch(2, ["-c", code])

    assert done.returncode == 1
    assert "named 'fc.weight' at step 1; rank 1 at" in done.stderr
    assert "named 'fc.weight' at step 2" in done.stderr


def test_a_module_that_raises_is_named_by_its_path():
    code = (
        "import tenon, tenon.distributed as dist\n"
        "from tenon.nn import Module, Sequential\n"
        "class Bad(Module):\n"
        "    def forward(self, x):\n"
        "        if dist.get_rank() == 1: raise ValueError('negative width')\n"
        "        return x\n"
        "model = Sequential(Sequential(Bad()))\n"
        "model(tenon.ones(1))\n"
        "dist.barrier()\n"
    )
    done = launch(2, ["-c", code])

    assert done.returncode == 1
    assert "in module: 0.0\n" in done.stderr
    assert "ValueError: negative width" in done.stderr


def test_a_script_that_fails_before_it_imports_tenon_is_covered_by_the_runner(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from mpi4py import MPI\n"
        "if MPI.COMM_WORLD.rank == 1:\n"
        "    raise SystemExit(5)\n"
        "MPI.COMM_WORLD.barrier()\n"
    )
    done = launch(2, ["-m", "tenon.distributed", str(script)])

    assert done.returncode == 5
    assert done.stderr.count("=== tenon: rank 1 of 2") == 1
