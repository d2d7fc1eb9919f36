"""``tenon export FILE`` of exported programs and traces."""

import pytest
from click.testing import CliRunner

import tenon as torch
from tenon import nn
from tenon.training.export_command import export


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(18, 3)).eval()


X = torch.randn(2, 1, 5, 5)


def exported(file, folder, *options):
    done = CliRunner().invoke(export, [str(file), "--to", "numpy", "-o", str(folder), *options])
    assert done.exit_code == 0, done.output
    report = torch.export.verify(folder)
    assert report.passed
    return torch.export.load(folder)


@pytest.fixture
def program(tmp_path):
    file = tmp_path / "program.pt2"
    torch.export.save(torch.export.export(model(), (X,), dynamic_shapes=({0: torch.export.Dim("n")},)), file)
    return file


@pytest.fixture
def trace(tmp_path):
    file = tmp_path / "trace.pt"
    torch.jit.save(torch.jit.trace(model(), X), file)
    return file


def test_a_program_keeps_its_example_and_its_sizes(program, tmp_path):
    assert torch.equal(torch.export.load(program).example_inputs[0][0], X)

    bundle = exported(program, tmp_path / "out")

    assert list(bundle.graph.symbols) == ["n"]
    assert [run.inputs[0].shape[0] for run in bundle.vectors.runs] == [2, 2, 2, 4]
    assert (bundle.vectors.runs[0].inputs[0] == X.numpy()).all()
    torch.testing.assert_close(bundle.graph.run(torch.ones(7, 1, 5, 5)), model()(torch.ones(7, 1, 5, 5)))


@pytest.mark.parametrize(
    ("options", "symbols", "sizes"),
    [([], [], {2}), (["--batch-size", "5"], [], {5}), (["--max-batch-size", "3"], [(1, 3)], {2, 3})],
)
def test_the_batch_of_a_trace_is_that_of_the_example_or_the_one_asked_for(
    trace, tmp_path, options, symbols, sizes
):
    bundle = exported(trace, tmp_path / "out", *options)

    found = bundle.graph.symbols.values()
    assert [(max(each.least, 1), each.most) for each in found] == symbols
    assert {run.inputs[0].shape[0] for run in bundle.vectors.runs} == sizes
    assert all(run.inputs[0].shape[1:] == (1, 5, 5) for run in bundle.vectors.runs)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--train"], "--train needs the folder of the run"),
        (["--batch-size", "2", "--any-batch-size"], "--batch-size 2 fixes the size of the batch"),
    ],
)
def test_options_that_contradict_a_file_are_refused(program, tmp_path, options, problem):
    done = CliRunner().invoke(export, [str(program), "-o", str(tmp_path / "out"), *options])

    assert done.exit_code == 2 and problem in done.output and not (tmp_path / "out").exists()


def test_a_batch_of_one_size_cannot_change(tmp_path):
    file = tmp_path / "program.pt2"
    torch.export.save(torch.export.export(model(), (X,)), file)

    done = CliRunner().invoke(export, [str(file), "-o", str(tmp_path / "out"), "--any-batch-size"])

    assert done.exit_code == 2 and "has one size" in done.output


def test_an_example_of_other_shapes_is_refused(program, monkeypatch):
    loaded = torch.export.load(program)
    loaded.captured.example = [X.numpy()[:1]]
    torch.export.save(loaded, program)

    with pytest.raises(torch.errors.BundleError, match="the example has other shapes"):
        torch.export.load(program)
