"""Bundles: written atomically, refused if anything in them is changed, verified by running them."""

import json
import os
import shutil
import sys
from typing import ClassVar

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.errors import ArgumentError, BundleError, CaptureError, LoweringError, PluginNotFoundError
from tenon.export import capture, load, save, schema, verify
from tenon.export.bundle import sealed
from tenon.extend import Target
from tenon.testing import TargetSuite
from tenon.testing.suites.reference_target import ReferenceTarget as Reference
from tenon.testing.suites.target_models import MODELS


@pytest.mark.slow  # the target numpy runs the suite by default
class TestReference(TargetSuite):
    target = Reference
    trains = True


class Wrong(Reference):
    """A target whose outputs are wrong."""

    name = "wrong"

    def run(self, folder, runs):
        return [[out * 1.01 for out in outs] for outs in super().run(folder, runs)]


class Broken(Reference):
    name = "broken"

    def run(self, folder, runs):
        raise BundleError("the compiler found an error in model.c")


class Absent(Reference):
    name = "absent"

    def unavailable(self):
        return "no compiler: acme-cc"


@pytest.fixture
def bundle(tmp_path):
    tenon.manual_seed(0)
    example = MODELS["digits"]()
    return save(example.model, tmp_path / "digits", example.args, targets=[Reference()])


def test_a_bundle_is_read_as_it_was_written(bundle):
    tenon.manual_seed(0)
    example = MODELS["digits"]()
    graph = capture(example.model, *example.args)

    read = load(bundle)

    assert sorted(p.name for p in bundle.iterdir()) == [
        "graph.json", "manifest.json", "reference", "vectors.safetensors", "weights.safetensors",
    ]  # fmt: skip
    assert [node.label for node in read.graph.inputs] == [node.label for node in graph.inputs]
    strip = lambda text: [line.partition("  # ")[0] for line in text.splitlines()]  # noqa: E731
    assert strip(str(read.graph)) == strip(str(graph))
    assert tenon.equal(read.graph.run(*example.args), graph.run(*example.args))
    assert {node.module for node in read.graph.calls} == {node.module for node in graph.calls}
    assert all("/" not in node.where for node in read.graph.calls)
    assert read.targets == {"reference": ["reference/model.json", "reference/model.safetensors"]}
    with tenon.no_grad():
        expected = example.model(*example.args).numpy()
    assert np.allclose(read.vectors.runs[0].outputs[0], expected, atol=1e-6)


@pytest.mark.parametrize(
    "name", ["graph.json", "weights.safetensors", "vectors.safetensors", "reference/model.json"]
)
def test_a_changed_byte_is_refused_by_name(bundle, name):
    content = bytearray((bundle / name).read_bytes())
    content[len(content) // 2] ^= 1
    (bundle / name).write_bytes(content)

    with pytest.raises(BundleError, match=rf"{name} was changed"):
        load(bundle)


def test_every_byte_of_the_manifest_is_checked(bundle):
    """One digit of the tolerance would let wrong results pass."""
    place = bundle / "manifest.json"
    content = place.read_bytes()
    assert b'"absolute": 1e-05' in content

    for changed in (
        content.replace(b"1e-05", b"1e+05", 1), content.replace(b"\n ", b"\n\t", 1), content[:-1], content + b"\n",
        *(content[:i] + bytes([content[i] ^ 1]) + content[i + 1 :] for i in range(len(content))),
    ):  # fmt: skip
        place.write_bytes(changed)
        with pytest.raises(BundleError, match=r"manifest\.json"):
            load(bundle)
    place.write_bytes(content)
    assert load(bundle).vectors.absolute == 1e-5


def test_files_that_the_manifest_does_not_list_are_ignored(bundle):
    """``make test`` adds some; ``verify`` copies only those that it knows."""
    (bundle / "reference" / "test_model").write_text("new")

    assert verify(bundle, found=[Reference()]).passed
    assert "reference/test_model" not in load(bundle).targets["reference"]


@pytest.mark.parametrize(
    "name", ["graph.json", "weights.safetensors", "vectors.safetensors", "reference/model.json"]
)
def test_a_missing_file_is_refused_by_name(bundle, name):
    (bundle / name).unlink()

    with pytest.raises(BundleError, match=rf"{name} is missing"):
        load(bundle)


def edited(bundle, change, file="manifest.json"):
    document = json.loads((bundle / file).read_text())
    document.pop("sha256", None)
    change(document)
    (bundle / file).write_bytes(sealed(json.dumps(document)))


def test_a_foreign_schema_or_version_is_refused(bundle, tmp_path):
    with pytest.raises(BundleError, match=r"is not a bundle: there is no manifest\.json"):
        load(tmp_path)
    for version in (2, True, 1.0, "1", None):
        edited(bundle, lambda d: d.update(version=version))
        with pytest.raises(
            BundleError, match=rf"version {version!r} of its schema, and this tenon reads ver"
        ):
            load(bundle)
    edited(bundle, lambda d: d.update(schema="other"))
    with pytest.raises(BundleError, match=r"of schema 'other', not 'tenon\.bundle'"):
        load(bundle)
    (bundle / "manifest.json").write_bytes(b"[" * 100_000)
    with pytest.raises(BundleError, match=r"manifest\.json is not JSON"):
        load(bundle)


@pytest.mark.parametrize(
    "name", ["../outside", "/etc/passwd", "reference/../../outside", "a\\b", "./graph.json", ""]
)
def test_a_path_out_of_the_bundle_is_refused(bundle, name):
    edited(bundle, lambda d: d["files"].update({name: {"sha256": "0", "bytes": 1}}))

    with pytest.raises(BundleError):
        load(bundle)


def test_a_symbolic_link_is_refused(bundle):
    place = bundle / "graph.json"
    content = place.read_bytes()
    outside = bundle.parent / "outside.json"
    outside.write_bytes(content)
    place.unlink()
    os.symlink(outside, place)

    with pytest.raises(BundleError, match="symbolic link"):
        load(bundle)
    place.unlink()
    place.write_bytes(content)
    (bundle / "manifest.json").rename(outside)
    os.symlink(outside, bundle / "manifest.json")
    with pytest.raises(BundleError, match=r"manifest\.json is reached by a symbolic link"):
        load(bundle)


def test_an_existing_folder_is_replaced_only_on_request(bundle):
    before = (bundle / "graph.json").read_bytes()
    example = MODELS["net"]()

    with pytest.raises(BundleError, match="exists"):
        save(example.model, bundle, example.args)
    assert (bundle / "graph.json").read_bytes() == before

    save(example.model, bundle, example.args, overwrite=True)
    assert load(bundle).graph.signature.inputs == ["x"]
    assert [p.name for p in bundle.parent.iterdir()] == [bundle.name]


@pytest.mark.together
@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"examples": tenon.ones(2)}, r"a tuple of the function's arguments: \(x,\)"),
        ({"targets": "c"}, "targets='c' is no list"),
        *(({"tolerance": t}, "tolerance=.* is no number") for t in (float("nan"), float("inf"), -1e-5, "a")),
    ],
)
def test_options_of_save_are_checked_before_anything_else(options, match, tmp_path):
    with pytest.raises(ArgumentError, match=match):
        save(lambda x: x + 1, tmp_path / "bundle", **{"examples": (tenon.ones(2),), **options})

    assert list(tmp_path.iterdir()) == []


class Failing(Target):
    name = "failing"
    ops = Reference.ops

    def write(self, graph, vectors, folder):
        (folder / "half").write_text("half")
        raise OSError(28, "No space left on device")


def test_an_error_of_a_target_leaves_nothing_and_the_former_bundle(bundle):
    example = MODELS["net"]()
    before = load(bundle).graph.signature.inputs

    with pytest.raises(OSError, match="No space"):
        save(example.model, bundle, example.args, targets=[Reference(), Failing()], overwrite=True)
    with pytest.raises(OSError, match="No space"):
        save(example.model, bundle.parent / "other", example.args, targets=[Failing()])

    assert [p.name for p in bundle.parent.iterdir()] == [bundle.name]
    assert load(bundle).graph.signature.inputs == before


class Poor(Target):
    name = "poor"
    ops = frozenset({"linear"})


class Poorer(Target):
    name = "poorer"


def test_what_no_target_supports_is_reported_at_once(tmp_path):
    example = MODELS["net"]()

    with pytest.raises(LoweringError) as caught:
        save(example.model, tmp_path / "net", example.args, targets=[Poor(), Poorer()])

    text = str(caught.value)
    assert (
        "poor: the target does not support relu" in text
        and "poorer: the target does not support linear" in text
    )
    assert list(tmp_path.iterdir()) == []


def test_decisions_that_a_target_cannot_check_are_refused(tmp_path):
    def function(x):
        return x if x.sum() > 0 else -x

    graph = capture(function, tenon.ones(3), guards=True)

    with pytest.raises(LoweringError, match=r"cannot check that Python decides .*test_bundle\.py:\d+"):
        save(graph, tmp_path / "bundle", targets=[Reference()])
    folder = save(graph, tmp_path / "bundle")
    with pytest.raises(CaptureError, match="the graph does not hold"):
        load(folder).graph.run(-tenon.ones(3))


class Own(Reference):
    """A target with a lowering of its own."""

    def lowered(self, graph):
        return graph


def test_a_target_that_lowers_by_itself_gets_no_sizes_that_change_unless_it_says_so(tmp_path):
    graph = capture(lambda x: x * 2, tenon.ones(3), dynamic={"x": {0: "n"}})

    with pytest.raises(LoweringError, match="it has fixed sizes, and the graph has n"):
        save(graph, tmp_path / "bundle", targets=[Own()])


def test_the_number_of_the_step_may_not_decide_unseen(tmp_path):
    class Warming(tenon.optim.Optimizer):
        defaults: ClassVar = {"lr": 0.01}

        def init(self, f, p):
            return {}

        def update(self, f, p, g, s, h):
            return p - (h.lr if h.step > 3 else 0.1 * h.lr) * g, {}

    model = nn.Linear(2, 1)
    optimizer = Warming(model.parameters())

    def step(x):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    graph = capture(step, tenon.ones(1, 2), train=True)

    with pytest.raises(LoweringError, match="cannot check that Python decides"):
        save(graph, tmp_path / "bundle", targets=[Reference()], calls=[(tenon.ones(1, 2),)])


def test_vectors_are_those_of_the_model(tmp_path):
    class Counting(nn.Module):
        calls = 0

        def forward(self, x):
            Counting.calls += 1
            return x * Counting.calls

    with pytest.raises(CaptureError, match="the graph and the model compute different results"):
        save(Counting(), tmp_path / "bundle", (tenon.ones(2),))
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_target_is_named(tmp_path):
    with pytest.raises(PluginNotFoundError, match="nonesuch"):
        save(MODELS["net"]().model, tmp_path / "net", (tenon.ones(1, 4),), targets=["nonesuch"])


def test_random_numbers_of_another_generator_are_in_graphs_and_not_in_bundles(tmp_path):
    own = tenon.Generator().manual_seed(3)
    graph = capture(lambda x: x + tenon.randn(3, generator=own), tenon.ones(3))

    with pytest.raises(LoweringError, match=r"draws random numbers.*host_draw \(.*test_bundle\.py"):
        save(graph, tmp_path / "noise")
    assert list(tmp_path.iterdir()) == []
    document, arrays = schema.to_document(graph)
    read = schema.from_document(document, arrays, "a test")
    numbers = tenon.randn(3, generator=tenon.Generator().manual_seed(3))
    assert tenon.equal(read.run(tenon.ones(3)), 1 + numbers)


def test_dropout_in_training_mode_is_refused(tmp_path):
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))

    with pytest.raises(LoweringError, match=r"dropout_mask \(1\)\. Call eval\(\)"):
        save(model, tmp_path / "noise", (tenon.ones(1, 2),))


def test_verify_reports_each_target(tmp_path):
    example = MODELS["net"]()
    targets = [Reference(), Wrong(), Broken(), Absent()]
    folder = save(example.model, tmp_path / "net", example.args, targets=targets)

    report = verify(folder, found=targets)

    assert [(v.target, v.status) for v in report.verdicts] == [
        ("graph", "passed"), ("reference", "passed"), ("wrong", "failed"), ("broken", "failed"), ("absent", "not run"),
    ]  # fmt: skip
    wrong, broken, absent = report.verdicts[2:]
    assert wrong.excess > 100 and "times the tolerance" in wrong.reason
    assert broken.reason == "BundleError: the compiler found an error in model.c"
    assert absent.reason == "no compiler: acme-cc"
    assert not report.passed and report.runs == 1


def test_no_room_to_run_a_target_is_its_failure(bundle, monkeypatch):
    def full(source, place):
        raise OSError(28, "No space left on device", place)

    monkeypatch.setattr(shutil, "copyfile", full)
    graph, reference = verify(bundle, found=[Reference()]).verdicts

    assert graph.status == "passed" and reference.status == "failed"
    assert "No space left on device. Set TMPDIR to a folder with more room" in reference.reason


def test_verify_of_the_graph_alone_executes_no_program(bundle):
    class Hostile(Reference):
        def run(self, folder, runs):
            raise AssertionError("it was run")

    report = verify(bundle, targets=(), found=[Hostile()])

    assert [v.target for v in report.verdicts] == ["graph"] and report.passed


def test_a_graph_larger_than_the_machine_is_not_run(tmp_path, monkeypatch):
    folder = save(lambda x: x.expand(1000, 1000) * 2.0, tmp_path / "large", (tenon.ones(1),))
    monkeypatch.setattr(sys.modules[verify.__module__], "physical_memory", lambda: 1 << 20)

    (verdict,) = verify(folder).verdicts

    assert verdict.status == "failed" and "the graph needs 8,000,000 bytes at once" in verdict.reason


def test_verify_does_not_change_the_bundle(bundle):
    class Compiling(Reference):
        def run(self, folder, runs):
            (folder / "a.out").write_text("made")
            return super().run(folder, runs)

    assert verify(bundle, found=[Compiling()]).passed
    assert not list(bundle.rglob("a.out"))


def test_a_training_step_goes_through_a_bundle(tmp_path):
    tenon.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = tenon.optim.Adam(model.parameters(), lr=0.1)

    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    batch = tenon.randn(4, 3), tenon.tensor([0, 1, 1, 0])
    folder = save(step, tmp_path / "step", batch, targets=[Reference()], train=True)

    assert verify(folder, found=[Reference()]).passed
    losses = [float(run.outputs[0]) for run in load(folder).vectors.runs]
    assert len(losses) == 10 and losses == sorted(losses, reverse=True)
    assert [step(*batch).item() for _ in range(10)] == pytest.approx(losses, abs=1e-6)


def test_a_bundle_can_be_copied(bundle, tmp_path):
    shutil.copytree(bundle, tmp_path / "copy")

    assert verify(tmp_path / "copy", found=[Reference()]).passed
