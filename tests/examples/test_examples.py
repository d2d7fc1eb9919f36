"""Every example runs as its docstring says."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
MPIRUN = shutil.which("mpirun", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))


def run(command, cwd, **environment):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        command,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PATH": path, **environment},
    )


@pytest.mark.slow
def test_first_steps_learns_and_reloads(tmp_path):
    done = run([sys.executable, str(EXAMPLES / "first_steps.py")], tmp_path)

    assert done.returncode == 0, done.stderr
    assert "<All keys matched successfully>" in done.stdout
    assert abs(float(done.stdout.rsplit(maxsplit=1)[1]) - 4) < 0.3


@pytest.mark.slow
def test_a_pass_over_a_traced_model_leaves_no_batch_norm(tmp_path):
    done = run([sys.executable, str(EXAMPLES / "fx_conv_bn_fusion.py")], tmp_path)

    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("0 batch norms are left, and the results agree\n")


@pytest.mark.slow
def test_an_interpreter_times_every_operation(tmp_path):
    done = run([sys.executable, str(EXAMPLES / "fx_profiler.py")], tmp_path)

    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert sorted(row[1] for row in rows) == ["_0", "_1", "_2", "_3", "_4", "input_1", "output"]


@pytest.mark.mpi
@pytest.mark.slow  # the README's code runs on two
@pytest.mark.parametrize("ranks", [1, 2])
def test_two_ranks_agree(tmp_path, ranks):
    launcher = [] if ranks == 1 else [MPIRUN, "-n", str(ranks)]

    done = run([*launcher, sys.executable, str(EXAMPLES / "two_ranks.py")], tmp_path)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{ranks} rank(s), accuracy ")
    assert float(done.stdout.split()[-1]) > 0.95


@pytest.mark.slow
@pytest.mark.mpi
def test_own_model_trains_under_the_command(tmp_path):
    folder = shutil.copytree(EXAMPLES / "own_model", tmp_path / "own_model")

    done = run([MPIRUN, "-n", "2", "tenon", "train", "spirals.toml"], folder)

    assert done.returncode == 0, done.stderr
    metrics = next((folder / "runs").glob("*/metrics.jsonl"))
    final = json.loads(metrics.read_text().splitlines()[-1])
    assert final["final"] and final["world_size"] == 2
    assert final["test_accuracy"] > 0.9


@pytest.mark.slow
@pytest.mark.mpi
def test_the_files_of_the_first_guide_train(tmp_path):
    guide = (ROOT / "docs" / "guide" / "getting-started.md").read_text()
    for name in ("my_model.py", "my.toml"):
        found = re.search(rf"```\w+\n(# {re.escape(name)}\n.*?)```", guide, re.DOTALL)
        (tmp_path / name).write_text(found[1])

    done = run([MPIRUN, "-n", "2", "tenon", "train", "my.toml"], tmp_path)

    assert done.returncode == 0, done.stderr
    metrics = next((tmp_path / "runs").glob("*/metrics.jsonl"))
    assert json.loads(metrics.read_text().splitlines()[-1])["test_accuracy"] > 0.85


def test_the_tiger_plugin_is_found_once_installed(tmp_path):
    site = tmp_path / "site"
    shutil.copytree(EXAMPLES / "tiger" / "tenon_tiger", site / "tenon_tiger")
    info = site / "tenon_tiger-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tenon-tiger\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[tenon]\ntiger = tenon_tiger.plugin\n")
    program = (
        "import tenon\n"
        "w = tenon.ones(3, requires_grad=True)\n"
        "optimizer = tenon.optim.Tiger([w], lr=0.1)\n"
        "w.sum().backward()\n"
        "optimizer.step()\n"
        "print(w.tolist())\n"
    )

    done = run([sys.executable, "-c", program], tmp_path, PYTHONPATH=str(site))

    assert done.returncode == 0, done.stderr
    assert [round(v, 3) for v in json.loads(done.stdout)] == [0.9, 0.9, 0.9]
