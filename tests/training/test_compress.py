"""``tenon compress``: from a finished run to a smaller model and its receipt."""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tenon

PROGRAM = Path(__file__).parent / "programs" / "commands.py"


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
    with open(project.folder / "small.py", "a") as file:
        file.write("\n\ndef empty():\n    return load(test=0)\n")
    run = project.train("my.toml")
    assert run.code == 0, run.err
    return project, run


@pytest.mark.slow
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


@pytest.fixture(scope="module")
def masked(make_project, tmp_path_factory):
    """Runs that masked half of the channels, and half of the weights."""
    project = make_project(tmp_path_factory.mktemp("masked"))
    prune = "--set", "prune.amount=0.5"
    return (
        project,
        project.train("my.toml", *prune),
        project.train("my.toml", *prune, "--set", "prune.what='weights'"),
    )


def test_what_a_run_has_masked_is_removed(masked):
    project, run, _ = masked
    done = compress(project, str(run.folder))

    assert done.returncode == 0, done.stderr
    assert re.search(r"Accuracy: (0\.\d+) before, \1 now", done.stdout)
    state = tenon.load(run.folder / "compressed" / "model.safetensors")
    small = tenon.compress.load(model(project), state).eval()
    assert small.layers[0].out_features == 8
    saved = {name: value for name, value in run.saved()["model"].items() if name.startswith("layers.0.")}
    weight = saved["layers.0.weight_orig"] * saved["layers.0.weight_mask"]
    assert tenon.equal(small.layers[0].weight, weight[weight.abs().sum(1) > 0])


@pytest.mark.slow
def test_masks_of_a_run_hold_in_further_pruning_and_quantizing(masked, tmp_path):
    project, run, weights = masked
    output = tmp_path / "smaller"
    done = compress(
        project, str(run.folder), "--prune", "0.25", "--epochs", "1", "--quantize", "int8-dynamic",
        "--output", str(output),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    small = tenon.compress.load(model(project), tenon.load(output / "model.safetensors"))
    assert small.layers[0].out_features <= 8

    done = compress(project, str(weights.folder), "--quantize", "int8-dynamic")
    assert done.returncode == 0, done.stderr
    done = compress(project, str(weights.folder))
    assert done.returncode == 2 and "masked single weights, which stay where they are as zeros" in done.stderr


@pytest.mark.slow
def test_criteria_of_gradients_get_them(trained, tmp_path):
    project, run = trained
    done = compress(
        project, str(run.folder), "--prune", "0.25", "--criterion", "Taylor", "--epochs", "0",
        "--output", str(tmp_path / "made"),
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert "Pruning: 4 channels" in done.stdout
    assert (tmp_path / "made" / "model.safetensors").exists()


@pytest.mark.slow
def test_gradients_for_a_criterion_are_those_of_a_model_that_is_not_training(make_project, tmp_path):
    project = make_project(tmp_path)
    with open(project.folder / "small.py", "a") as file:
        file.write(
            "\n\nclass Watched(Net):\n    def forward(self, x):\n        import os\n"
            "        assert not (self.training and 'COMPRESSING' in os.environ)\n"
            "        return super().forward(x)\n"
        )
    run = project.train("my.toml", "--set", "model=small:Watched", "--set", "epochs=1")
    assert run.code == 0, run.err
    project.environment = {**project.environment, "COMPRESSING": "1"}

    done = compress(project, str(run.folder), "--prune", "0.25", "--criterion", "Taylor", "--epochs", "0")

    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_layers_that_lose_accuracy_stay_and_the_receipt_names_them(make_project, tmp_path):
    project = make_project(tmp_path)
    with open(project.folder / "small.py", "a") as file:
        file.write(
            "\n\nclass Uneven(Net):\n    # One weight is so large that int8 rounds the rest of its row to"
            " zeros.\n    def __init__(self):\n        super().__init__()\n        with tenon.no_grad():\n   "
            "         self.layers[0].weight[:, 0] *= 1e5\n    def forward(self, x):\n        return"
            " super().forward(x * tenon.tensor([1e-5, 1, 1, 1, 1, 1]))\n"
        )
    run = project.train("my.toml", "--set", "model=small:Uneven")
    assert run.code == 0, run.err

    done = compress(project, str(run.folder), "--quantize", "int8-weights", "--within", "1")

    assert done.returncode == 0, done.stderr
    receipt = (run.folder / "compressed" / "receipt.txt").read_text()
    assert "'layers.0' stays: the accuracy fell by" in receipt and receipt.strip() in done.stdout
    loss = re.search(r"Accuracy: ([\d.]+) before, ([\d.]+) now", receipt)
    assert float(loss[2]) >= float(loss[1]) - 0.01


@pytest.mark.slow
def test_layers_that_got_slower_stay_and_the_receipt_names_them(trained, tmp_path):
    project, run = trained
    folder = tmp_path / "made"
    done = compress(
        project, str(run.folder), "--quantize", "int8-dynamic", "--leave-slow", "--output", str(folder)
    )

    if done.returncode:
        assert "no layer of this Net gains: 'layers.0' stays: it was slower" in done.stderr, done.stderr
        return
    receipt = (folder / "receipt.txt").read_text()
    small = tenon.compress.load(model(project), tenon.load(folder / "model.safetensors"))
    stay = set(re.findall(r"'([\w.]+)' stays: it was slower", receipt))
    linear = {path for path, module in small.named_modules() if type(module) is tenon.nn.Linear}
    assert stay == linear and receipt.strip() in done.stdout


@pytest.mark.slow
def test_a_model_that_cannot_be_written_leaves_no_receipt(trained, tmp_path):
    project, run = trained
    (tmp_path / "made" / "model.safetensors").mkdir(parents=True)
    done = compress(
        project, str(run.folder), "--quantize", "int8-dynamic", "--output", str(tmp_path / "made")
    )

    assert done.returncode == 2
    assert "the smaller model is not saved" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "made" / "receipt.txt").exists()


REFUSALS = [
    (["RUN"], "nothing to do: pass --prune 0.5"),
    (["RUN", "--prune", "1.5"], "1.5 is not in the range"),
    (["RUN", "--prune", "0.5", "--criterion", "Magnitud"], "Magnitude"),
    (["RUN", "--quantize", "int9"], "int8"),
    (["RUN", "--prune", "0.5", "--set", "optimizer.lrr=1"], "optimizer.lr"),
    (["RUN", "--prune", "0.5", "--batch-sizes", "1,x"], "'1,x' is not a list of batch sizes"),
    (["RUN", "--prune", "0.5", "--within", "1"], "apply to --quantize"),
    (["RUN", "--quantize", "int8", "--data", "small:empty"], "the test data set of the run is empty"),
    (["nowhere", "--prune", "0.5"], "nowhere has no checkpoints/ folder"),
    (["RUN", "--quantize", "int8-dynamic", "--data", "small:lod"], "small has no 'lod'. Did you mean 'load'?"),
]  # fmt: skip


@pytest.fixture(scope="module")
def refusals(trained, tmp_path_factory):
    """Exit status, output and errors of each command, and the folder where it could have left a model."""
    project, run = trained
    folder = tmp_path_factory.mktemp("refused")
    commands = [
        [str(run.folder) if a == "RUN" else a for a in arguments] + ["--output", str(folder / str(number))]
        for number, (arguments, _) in enumerate(REFUSALS)
    ]
    done = subprocess.run(
        [sys.executable, PROGRAM, "compress"], input=json.dumps(commands), cwd=project.folder,
        env=project.environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), folder


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(REFUSALS)), ids=[answer for _, answer in REFUSALS])
def test_what_cannot_be_done_is_one_clear_line(refusals, number):
    results, folder = refusals
    status, _, err, _ = results[number]

    assert status == 2, err
    assert REFUSALS[number][1] in " ".join(err.split()) and "Traceback" not in err
    assert not list(folder.glob(f"{number}/model*"))


@pytest.mark.slow
def test_ctrl_c_while_training_leaves_no_model_and_says_so(trained, tmp_path):
    project, run = trained
    arguments = command(
        project, str(run.folder), "--prune", "0.5", "--epochs", "100000", "--output", str(tmp_path / "made")
    )
    process = subprocess.Popen(
        arguments, cwd=project.folder, env=project.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    metrics, deadline = tmp_path / "made" / "metrics.jsonl", time.monotonic() + 300
    while not (metrics.exists() and os.path.getsize(metrics)) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)

    assert process.returncode == 130, err
    assert "nothing is saved, as checkpoint.every is 0" in out and "resume" not in out
    assert not (tmp_path / "made" / "model.safetensors").exists()
