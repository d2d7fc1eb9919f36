"""The README: its commands are stated literally, its code runs, its links are valid."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TRAIN = (
    'python3 -m venv .venv && . .venv/bin/activate && pip install -e ".[mpich,fast]" '
    "&& mpirun -n 2 tenon train digits"
)
TEST = 'python3 -m venv .venv && . .venv/bin/activate && pip install -e ".[dev]" && pytest'
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


def run(command, cwd):
    environment = {**os.environ, "PATH": PATH}
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, env=environment)


def mpirun(ranks):
    return [] if ranks == 1 else [shutil.which("mpirun", path=PATH), "-n", str(ranks)]


def test_the_two_commands_are_there_literally():
    assert re.findall(r"```sh\n(.*?)\n```", README, re.S) == [TRAIN, TEST]


def test_ci_calls_the_test_command_literally():
    assert TEST in (ROOT / ".ci" / "run").read_text().splitlines()


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_the_code_learns_and_saves_a_file(tmp_path, ranks):
    (code,) = re.findall(r"```python\n(.*?)```", README, re.S)
    (tmp_path / "train.py").write_text(code)

    done = run([*mpirun(ranks), sys.executable, "train.py"], tmp_path)

    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"loss 0\.0\d+\n", done.stdout), done.stdout
    import tenon

    assert list(tenon.load(tmp_path / "net.pt")) == ["0.weight", "0.bias", "2.weight", "2.bias"]


@pytest.mark.slow
@pytest.mark.mpi
def test_digits_are_learnt_on_two_ranks_in_under_a_minute(tmp_path):
    used = sum(os.times()[2:4])

    done = run(["mpirun", "-n", "2", "tenon", "train", "digits"], tmp_path)

    assert done.returncode == 0, done.stderr
    assert sum(os.times()[2:4]) - used < 60  # of processor time: a busy machine takes longer
    (folder,) = (tmp_path / "runs").iterdir()
    assert f"run folder: {folder}" in done.stdout
    final = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert final["final"] is True and final["world_size"] == 2
    assert final["test_accuracy"] >= 0.98
    assert final["samples_per_second"] > 0
    assert json.loads((folder / "config.json").read_text())["recipe"] == "digits"
    assert list(folder.glob("events.out.tfevents.*"))
    assert list((folder / "checkpoints").glob("*.safetensors"))


def test_every_file_that_it_names_exists():
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    paths = re.findall(r"`((?:tests|docs|examples|deploy)/[\w./-]+)`", README)

    assert len(links) > 7 and len(paths) > 9
    assert [p for p in links + paths if not (ROOT / p).exists()] == []


def test_the_map_shows_the_tree():
    block = README.partition("```text\n")[2].partition("```")[0]
    shown = {line.split("/")[0] for line in block.splitlines()}
    tracked = {
        p.name for p in ROOT.iterdir() if p.is_dir() and not p.name.startswith(".") and any(p.rglob("*.*"))
    }

    assert shown <= tracked
    assert tracked - shown <= {"runs", "build", "dist", "shared", "site"}
    for name in re.findall(r"tenon_\w+", block):
        assert (ROOT / "plugins" / name).is_dir() or (ROOT / "backends" / name).is_dir(), name
