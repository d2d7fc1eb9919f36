"""``tenon export`` and ``tenon verify``: from a finished run to a verified bundle."""

import json
import shutil
import sys

import pytest
from click.testing import CliRunner

import tenon
from tenon.cli import main
from tenon.export import load
from tenon.export.bundle import sealed
from tenon.extend import hookimpl
from tenon.plugins import manager
from tenon.testing.suites.reference_target import ReferenceTarget


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits") / "run"
    done = CliRunner().invoke(main, ["train", "digits", "--set", "epochs=1", "--run", str(folder)])
    assert done.exit_code == 0, done.output
    return folder


def call(*args):
    return CliRunner().invoke(main, [str(arg) for arg in args])


def test_a_run_is_exported_and_verified(run, tmp_path):
    done = call("export", run, "-o", tmp_path / "out", "--batch-size", 4)

    assert done.exit_code == 0 and "tenon verify" in done.output
    bundle = load(tmp_path / "out")
    assert [tuple(node.avals[0].shape) for node in bundle.graph.arguments] == [(4, 1, 8, 8)]
    assert len(bundle.vectors.runs) == 3
    checked = call("verify", tmp_path / "out")
    assert checked.exit_code == 0 and "passed" in checked.output and "graph" in checked.output


def test_the_trained_weights_are_exported(run, tmp_path):
    assert call("export", run, "-o", tmp_path / "out").exit_code == 0

    weights = {node.label: node.value for node in load(tmp_path / "out").graph.states}
    newest = sorted((run / "checkpoints").iterdir())[-1]
    saved = tenon.load(newest)["model"]

    assert weights and all(tenon.equal(weights[name], saved[name]) for name in weights)


def test_a_checkpoint_is_exported_by_its_file(run, tmp_path):
    older, newest = sorted((run / "checkpoints").iterdir())[0], sorted((run / "checkpoints").iterdir())[-1]
    away = shutil.copy(newest, tmp_path / "newest.safetensors")

    for number, file in enumerate((older, away)):
        done = call("export", file, "-o", tmp_path / str(number))

        assert done.exit_code == 0, done.output
        weights = {node.label: node.value for node in load(tmp_path / str(number)).graph.states}
        saved = tenon.load(file)["model"]
        assert weights and all(tenon.equal(weights[name], saved[name]) for name in weights)
    done = call("export", newest, "--run", run, "-o", tmp_path / "no")
    assert done.exit_code == 2 and "is a checkpoint" in done.output and "Leave --run out" in done.output


def test_any_batch_size(run, tmp_path):
    done = call("export", run, "-o", tmp_path / "out", "--batch-size", 2, "--any-batch-size")

    assert done.exit_code == 0, done.output
    bundle = load(tmp_path / "out")
    assert list(bundle.graph.symbols) == ["batch"]
    assert {len(each.inputs[0]) for each in bundle.vectors.runs} == {1, 2, 4}
    assert call("verify", tmp_path / "out").exit_code == 0


def test_a_batch_size_with_a_limit(run, tmp_path):
    done = call("export", run, "-o", tmp_path / "out", "--batch-size", 2, "--max-batch-size", 3)

    assert done.exit_code == 0, done.output
    bundle = load(tmp_path / "out")
    assert bundle.graph.symbols["batch"].most == 3
    assert {len(each.inputs[0]) for each in bundle.vectors.runs} == {1, 2, 3}
    assert call("verify", tmp_path / "out").exit_code == 0
    wrong = call("export", run, "-o", tmp_path / "no", "--batch-size", 4, "--max-batch-size", 3)
    assert wrong.exit_code == 2 and "is less than --batch-size 4" in wrong.output


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape", [["--batch-size", 1], ["--max-batch-size", 4], ["--train", "--batch-size", 8]]
)
def test_all_targets_of_a_run(run, tmp_path, shape):
    names = "numpy,c" if "--train" in shape else "numpy,c,onnx"
    assert call("export", run, "--to", names, "-o", tmp_path / "out", *shape).exit_code == 0

    checked = call("verify", tmp_path / "out", "--require-all")

    assert checked.exit_code == 0, checked.output


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [["--prune", 0.5], ["--quantize", "int8"], ["--prune", 0.5, "--quantize", "int8"]]
)
def test_all_targets_of_a_compressed_run(run, tmp_path, options):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    assert call("compress", copy, "--set", "epochs=1", *options).exit_code == 0
    small = copy / "compressed" / "model.safetensors"
    assert call("export", small, "--to", "numpy,c,onnx", "-o", tmp_path / "out").exit_code == 0

    checked = call("verify", tmp_path / "out", "--require-all")

    assert checked.exit_code == 0, checked.output


@pytest.mark.parametrize("most", [4, 2])
def test_a_range_of_few_sizes_is_written(run, tmp_path, most):
    few = call("export", run, "--to", "numpy", "-o", tmp_path / "few", "--max-batch-size", most)

    assert few.exit_code == 0, few.output
    assert call("verify", tmp_path / "few").exit_code == 0


def test_a_training_step_is_exported(run, tmp_path):
    done = call("export", run, "--train", "-o", tmp_path / "step", "--batch-size", 8)

    assert done.exit_code == 0, done.output
    bundle = load(tmp_path / "step")
    assert bundle.graph.writes and len(bundle.vectors.runs) == 10
    assert "optimizer.lr" in {scalar.name for scalar in bundle.graph.signature.scalars}
    assert call("verify", tmp_path / "step").exit_code == 0


def test_a_bundle_is_written_again_for_a_target(run, tmp_path, registered):
    assert call("export", run, "-o", tmp_path / "first").exit_code == 0

    done = call("export", tmp_path / "first", "--to", "bundle,reference", "-o", tmp_path / "second")

    assert done.exit_code == 0, done.output
    assert list(load(tmp_path / "second").targets) == ["reference"]
    assert call("verify", tmp_path / "second", "--require-all").exit_code == 0


@pytest.fixture
def registered():
    class Plugin:
        @hookimpl
        def tenon_targets(self):
            return {"reference": ReferenceTarget}

    manager.register(Plugin(), "reference-target")
    yield
    manager.unregister("reference-target")


@pytest.mark.slow
def test_a_compressed_model_is_exported(run, tmp_path):
    done = call("compress", run, "--quantize", "int8-dynamic")
    assert done.exit_code == 0, done.output

    done = call("export", run / "compressed", "-o", tmp_path / "out")

    assert done.exit_code == 0, done.output
    file = call("export", run / "compressed" / "model.safetensors", "-o", tmp_path / "file")
    assert file.exit_code == 0, file.output
    assert (tmp_path / "file" / "graph.json").read_bytes() == (tmp_path / "out" / "graph.json").read_bytes()
    away = shutil.copytree(run / "compressed", tmp_path / "away")
    done = call("export", away, "-o", tmp_path / "no")
    assert done.exit_code == 2 and "Name that run by --run RUN" in " ".join(done.output.split())
    done = call("export", away, "--run", run, "-o", tmp_path / "from-away")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "from-away" / "graph.json").read_bytes() == (
        tmp_path / "out" / "graph.json"
    ).read_bytes()
    for given in (run, tmp_path / "out"):
        done = call("export", given, "--run", run, "-o", tmp_path / "no")
        assert done.exit_code == 2 and "--run" in done.output and not (tmp_path / "no").exists()
    assert "int8_dynamic_linear" in {node.name for node in load(tmp_path / "out").graph.calls}
    assert call("verify", tmp_path / "out").exit_code == 0


def test_a_damaged_bundle_is_refused_in_one_line(run, tmp_path):
    assert call("export", run, "-o", tmp_path / "out").exit_code == 0
    with open(tmp_path / "out" / "weights.safetensors", "r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x7f")

    done = call("verify", tmp_path / "out")

    assert done.exit_code != 0
    assert "weights.safetensors was changed" in done.output and "Traceback" not in done.output


def test_the_graph_alone_is_verified_on_request(run, tmp_path, registered):
    assert call("export", run, "--to", "reference", "-o", tmp_path / "out").exit_code == 0

    done = call("verify", tmp_path / "out", "--graph-only")

    assert done.exit_code == 0 and "graph" in done.output and "reference" not in done.output
    assert call("verify", tmp_path / "out", "--graph-only", "--target", "reference").exit_code == 2


def test_a_graph_file_that_breaks_a_target_is_refused_in_one_line(run, tmp_path, monkeypatch, registered):
    """A bundle's graph is input; that of a run is tenon's own, whose failure is reported whole."""

    def write(self, graph, vectors, folder):
        raise TypeError("'int' object is not iterable")

    assert call("export", run, "-o", tmp_path / "first").exit_code == 0
    monkeypatch.setattr(ReferenceTarget, "write", write)

    done = call("export", tmp_path / "first", "--to", "reference", "-o", tmp_path / "out")
    own = call("export", run, "--to", "reference", "-o", tmp_path / "out")

    assert done.exit_code == 2 and "Traceback" not in done.output
    assert "cannot be written: TypeError: 'int' object is not iterable" in " ".join(done.output.split())
    assert isinstance(own.exception, TypeError)
    assert [path.name for path in tmp_path.iterdir()] == ["first"]


def test_a_failing_target_gives_status_one(run, tmp_path):
    assert call("export", run, "-o", tmp_path / "out").exit_code == 0
    manifest = tmp_path / "out" / "manifest.json"
    document = json.loads(manifest.read_text())
    del document["sha256"]
    document["targets"] = ["gone"]
    manifest.write_bytes(sealed(json.dumps(document)))

    assert call("verify", tmp_path / "out").exit_code == 0
    strict = call("verify", tmp_path / "out", "--require-all")
    assert strict.exit_code == 1 and "gone" in strict.output


def test_options_that_a_bundle_has_decided_are_refused(run, tmp_path):
    first = tmp_path / "first"
    assert call("export", run, "-o", first).exit_code == 0

    for option in (["--batch-size", 1], ["--any-batch-size"], ["--train"], ["--data", "module:name"]):
        done = call("export", first, "-o", tmp_path / "out", *option)
        assert done.exit_code == 2 and f"{option[0]} needs the folder of the run" in done.output


def test_only_bundles_are_replaced(run, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to(mine)

    for place in (mine, tmp_path / "file", tmp_path / "link", tmp_path):
        done = call("export", run, "-o", place, "--overwrite")
        assert done.exit_code == 2 and "is not a bundle, so it is never replaced" in done.output
    assert (mine / "thesis.txt").read_text() == "years of work"

    empty = tmp_path / "empty"
    empty.mkdir()
    assert call("export", run, "-o", empty).exit_code == 0
    refused = call("export", run, "-o", empty)
    assert refused.exit_code == 2 and "--overwrite" in refused.output
    assert call("export", run, "-o", empty, "--overwrite", "--batch-size", 2).exit_code == 0
    assert load(empty).graph.arguments[0].avals[0].shape[0] == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty", "file", "link", "mine"]


def test_a_folder_that_cannot_be_written_is_an_error_in_one_line(run, tmp_path):
    (tmp_path / "file").write_text("text")

    done = call("export", run, "-o", tmp_path / "file" / "out")

    assert done.exit_code == 2 and "Traceback" not in done.output
    assert "could not write the bundle" in done.output and "Nothing of it is left" in done.output


def test_export_runs_in_one_process(run, tmp_path, monkeypatch):
    monkeypatch.setattr("tenon.training.runs.is_launched", lambda: True)
    monkeypatch.setattr("tenon.training.runs.refuse", lambda error: sys.exit(str(error)))

    done = call("export", run, "-o", tmp_path / "out")

    assert done.exit_code != 0 and "start it without a launcher" in done.output
    assert not (tmp_path / "out").exists()


def test_targets_may_be_given_with_spaces_and_twice(run, tmp_path, registered):
    done = call("export", run, "--to", "reference, bundle,reference", "-o", tmp_path / "out")

    assert done.exit_code == 0, done.output
    assert list(load(tmp_path / "out").targets) == ["reference"]


def test_wrong_requests_are_refused_in_one_line(run, tmp_path):
    for args, text in [
        (["export", tmp_path, "-o", tmp_path / "out"], "Error"),
        (["export", run, "--to", "nonesuch", "-o", tmp_path / "out"], "no export target 'nonesuch'"),
        (["export", run, "--to", " ,", "-o", tmp_path / "out"], "--to names no target"),
        (["export", run / "config.json", "-o", tmp_path / "out"], "config.json': it begins like neither"),
        (["verify", tmp_path], "not a bundle"),
    ]:
        done = call(*args)
        assert done.exit_code != 0 and text in done.output and "Traceback" not in done.output
    assert not (tmp_path / "out").exists()


def test_a_target_that_cannot_run_here_says_which_extra_to_install(run, tmp_path, monkeypatch):
    class Absent(ReferenceTarget):
        name = "absent"

        def unavailable(self):
            return "running it needs: pip install 'tenon-platform[jax]'"

    class Plugin:
        @hookimpl
        def tenon_targets(self):
            return {"absent": Absent}

    plugin = Plugin()
    manager.register(plugin)
    monkeypatch.setenv("COLUMNS", "200")
    try:
        assert call("export", run, "--to", "absent", "-o", tmp_path / "out").exit_code == 0
        checked = call("verify", tmp_path / "out")
    finally:
        manager.unregister(plugin)

    assert "not run" in checked.output and "pip install 'tenon-platform[jax]'" in checked.output
