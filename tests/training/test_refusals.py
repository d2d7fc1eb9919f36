"""Errors of ``tenon train`` at the start: one line, exit status 2, no files left."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tenon.testing.suites.communicator import is_mpich

PROGRAM = Path(__file__).parent / "programs" / "commands.py"
REFUSALS = [
    ((), "name a recipe or a configuration file"),
    (("digit",), "no recipe or configuration file named 'digit'. Did you mean 'digits'?"),
    (("none.toml",), "no configuration file 'none.toml'"),
    (
        ("my.toml", "--set", "optimizer.lrr=1"),
        "unknown key 'optimizer.lrr'. Did you mean 'optimizer.lr'?",
    ),
    (("my.toml", "--set", "optimizer.lr=-1"), "optimizer.lr = -1: Invalid learning rate: -1"),
    (
        ("my.toml", "--set", "optimizer.lr=fast"),
        "optimizer.lr = 'fast': must be a number, not the string 'fast'",
    ),
    (
        ("my.toml", "--set", 'scheduler={name="StepLR",step_size=2,gamma="x"}'),
        "scheduler.gamma = 'x': Input should be a valid number",
    ),
    (("my.toml", "--set", "optimizer.betas=[0.9]"), "optimizer.betas = [0.9]: "),
    (("my.toml", "--set", "optimizer.name=Adamm"), "optimizer.name = 'Adamm'"),
    (("my.toml", "--set", "scheduler.name=StepLR"), "step_size"),
    (("my.toml", "--set", "model=small:Nett"), "small has no 'Nett'. Did you mean 'Net'?"),
    (("my.toml", "--set", "model=smal:Net"), "no module named 'smal'"),
    (
        ("my.toml", "--set", "model_options.drop=0.1"),
        "unknown key 'model_options.drop'. Did you mean 'model_options.dropout'?",
    ),
    (
        ("my.toml", "--set", "loss=cross_entrop"),
        "unknown loss 'cross_entrop'. Did you mean 'cross_entropy'?",
    ),
    (("my.toml", "--set", "data_options.test=0"), "the test data set of the run is empty"),
    (("--resume", "nowhere"), "nowhere"),
    (("my.toml", "--set", "device=cuda"), "cuda"),
]


@pytest.fixture(scope="module")
def refusals(tmp_path_factory, make_project):
    """Exit status, output and errors of each command, and whether it left a folder of runs."""
    project = make_project(tmp_path_factory.mktemp("refused"))
    commands = json.dumps([arguments for arguments, _ in REFUSALS])
    done = subprocess.run(
        [sys.executable, PROGRAM, "train"], input=commands, cwd=project.folder, env=project.environment,
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("number", range(len(REFUSALS)), ids=[message for _, message in REFUSALS])
def test_each_mistake_is_one_clear_line(refusals, number):
    status, out, err, left = refusals[number]

    assert (status, left) == (2, False), (out, err)
    assert "Traceback" not in err and len(err.splitlines()) == 1, err
    assert REFUSALS[number][1] in err


@pytest.mark.slow
@pytest.mark.mpi
def test_a_mistake_of_all_ranks_is_one_line_and_no_failure_report(project):
    run = project.train("my.toml", "--set", "epoch=1", ranks=3)

    assert run.code == 2
    said, *by_mpirun = run.err.splitlines()
    assert said == "Error: unknown key 'epoch'. Did you mean 'epochs'?"
    assert not by_mpirun or not is_mpich()
    assert "=== tenon" not in run.err and "Traceback" not in run.err


@pytest.mark.slow
@pytest.mark.mpi
def test_a_mistake_of_one_rank_ends_the_others(project):
    script = project.folder / "differ.sh"
    script.write_text(
        '#!/bin/sh\n[ "${PMI_RANK-$OMPI_COMM_WORLD_RANK}" = 1 ] && exec tenon train none.toml\nexec tenon train my.toml\n'
    )
    script.chmod(0o755)

    done = subprocess.run(
        [*project.command(ranks=2)[:3], str(script)],
        cwd=project.folder,
        capture_output=True,
        text=True,
        timeout=300,
        env=project.environment,
    )

    assert done.returncode != 0
    assert "no configuration file 'none.toml'" in done.stderr
    assert not (project.folder / "runs").exists()


@pytest.mark.slow
def test_an_error_in_the_users_model_is_shown_whole(project):
    (project.folder / "small.py").write_text("import a_library_that_is_missing\n")

    run = project.train("my.toml")

    assert run.code == 1
    assert "No module named 'a_library_that_is_missing'" in run.err
    assert 'small.py", line 1' in run.err


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_named(project):
    (project.folder / "runs").write_text("a file, not a folder")

    run = project.train("my.toml")

    assert run.code == 2
    assert "cannot create a run folder under output = 'runs'" in run.err
