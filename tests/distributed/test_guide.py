"""The code of the guide runs as printed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tenon.testing.suites.communicator import launch

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "distributed.md"
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
SCRIPT, LOOP, ELASTIC, SUITE, THREADS = BLOCKS


@pytest.mark.slow
@pytest.mark.mpi
def test_the_script_and_the_loop_print_one_small_loss_on_two_ranks(tmp_path):
    script = tmp_path / "train.py"
    loop = LOOP.replace("loss.backward()", "model(inputs[mine]).mean().backward()")
    script.write_text(SCRIPT + loop)

    done = launch(2, [str(script)])

    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"loss 0\.0\d* over 96 samples\n", done.stdout), done.stdout


@pytest.mark.slow
def test_the_suite_is_collected(tmp_path):
    (tmp_path / "test_mine.py").write_text(SUITE)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        str(tmp_path),
        "-p",
        "no:cacheprovider",
    ]

    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)

    assert "TestMine::test_communicator" in done.stdout, done.stdout


def test_ranks_as_threads_add_up():
    exec(compile(THREADS, "guide", "exec"), {})


def test_the_loop_that_outlives_ranks_ends_when_training_does():
    trained = []

    exec(compile(ELASTIC, "guide", "exec"), {"train": lambda: trained.append(1)})

    assert trained == [1]
