"""`tenon compress`: a finished run becomes a smaller model and its receipt."""

import importlib.util
import os
import signal
import subprocess
import time

import pytest

import tenon


def command(project, *arguments):
    return [*project.command()[:-1], "compress", *arguments]


def compress(project, *arguments):
    return subprocess.run(
        command(project, *arguments),
        cwd=project.folder,
        env=project.environment,
        capture_output=True,
        text=True,
    )


def model(project, **options):
    spec = importlib.util.spec_from_file_location("small_of_test", project.folder / "small.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Net(**options)


@pytest.fixture(scope="module")
def trained(make_project, tmp_path_factory):
    project = make_project(tmp_path_factory.mktemp("compress"))
    run = project.train("my.toml")
    assert run.code == 0, run.err
    return project, run


def test_a_run_is_pruned_trained_quantized_and_read_back(trained):
    project, run = trained
    done = compress(project, str(run.folder), "--prune", "0.5", "--quantize", "int8-dynamic", "--epochs", "1")

    assert done.returncode == 0, done.stderr
    assert "Pruning: 8 channels, heads and units by Magnitude" in done.stdout
    folder = run.folder / "compressed"
    receipt = (folder / "receipt.txt").read_text()
    assert receipt.strip() in done.stdout and "Accuracy: " in receipt
    state = tenon.load(folder / "model.safetensors")
    small = tenon.compress.load(model(project), state)
    assert small.layers[0].out_features == 8
    x = tenon.randn(5, 6)
    again = tenon.compress.load(model(project), small.state_dict())
    assert tenon.equal(again.eval()(x), small.eval()(x))
    assert not list(folder.glob("checkpoints/*"))


def test_criteria_of_gradients_get_them(trained, tmp_path):
    project, run = trained
    done = compress(
        project, str(run.folder), "--prune", "0.25", "--criterion", "Taylor", "--epochs", "0",
        "--output", str(tmp_path / "made"),
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert "Pruning: 4 channels" in done.stdout
    assert (tmp_path / "made" / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["RUN"], "say how: --prune 0.5"),
        (["RUN", "--prune", "1.5"], "1.5 is not in the range"),
        (["RUN", "--prune", "0.5", "--criterion", "Magnitud"], "Magnitude"),
        (["RUN", "--quantize", "int9"], "int8"),
        (["RUN", "--prune", "0.5", "--set", "optimizer.lrr=1"], "optimizer.lr"),
        (["RUN", "--prune", "0.5", "--batch-sizes", "1,x"], "'1,x' is no list of batch sizes"),
        (["nowhere", "--prune", "0.5"], "nowhere holds no checkpoints/ folder"),
        (["RUN", "--quantize", "int8-dynamic", "--data", "small:lod"], "small has no 'lod'. Did you mean 'load'?"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_one_clear_line(trained, tmp_path, arguments, answer):
    project, run = trained
    arguments = [str(run.folder) if a == "RUN" else a for a in arguments]
    done = compress(project, *arguments, "--output", str(tmp_path / "made"))

    assert done.returncode == 2
    assert answer in " ".join(done.stderr.split()) and "Traceback" not in done.stderr
    assert not list(tmp_path.glob("made/model*"))


def test_ctrl_c_while_training_leaves_no_model_and_says_so(trained, tmp_path):
    project, run = trained
    arguments = command(
        project, str(run.folder), "--prune", "0.5", "--epochs", "100000", "--output", str(tmp_path / "made")
    )
    process = subprocess.Popen(
        arguments, cwd=project.folder, env=project.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    metrics, deadline = tmp_path / "made" / "metrics.jsonl", time.monotonic() + 120
    while not (metrics.exists() and os.path.getsize(metrics)) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)

    assert process.returncode == 130, err
    assert "nothing is saved, as checkpoint.every is 0" in out and "resume" not in out
    assert not (tmp_path / "made" / "model.safetensors").exists()
