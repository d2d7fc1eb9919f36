"""GraphModules in checkpoints, pickles, copies and folders; and what a checkpoint must not contain."""

import copy
import importlib
import io
import operator
import pickle
import sys

import pytest

import tenon
from tenon import fx, nn
from tenon.errors import CheckpointError, UnsafeCheckpointError, UnsavableError
from tenon.fx import saved_graphs


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("shift", tenon.ones(3))

    def forward(self, x, k=2):
        y = self.linear(x) + self.shift
        best, _ = tenon.max(y, 0)
        shown = nn.functional.relu(y.view(-1), inplace=True)[1:, ...]
        return {"shown": shown, "best": (best.sum(dim=0), y.shape[0] * k), "half": x.to(tenon.float64)}


def same(ours, theirs):
    return tenon.equal(ours["shown"], theirs["shown"]) and ours["best"][1] == theirs["best"][1]


def of_file(data, **options):
    return tenon.load(io.BytesIO(data), **options)


def file_of(value):
    file = io.BytesIO()
    tenon.save(value, file)
    return file.getvalue()


def test_a_checkpoint_holds_the_graph_and_what_it_reads():
    traced = fx.symbolic_trace(Model()).eval()

    loaded = of_file(file_of({"model": traced}), weights_only=False)["model"]

    x = tenon.randn(3, 3)
    assert loaded.code == traced.code and type(loaded).__name__ == "Model" and not loaded.training
    assert same(loaded(x), traced(x))
    loaded.graph.lint()
    with pytest.raises(UnsafeCheckpointError, match="weights_only=False"):
        of_file(file_of(traced))


def leaf(x):
    return x


def test_a_function_of_the_users_is_refused_when_it_is_saved():
    graph = fx.Graph()
    graph.output(graph.call_function(leaf, (graph.placeholder("x"),)))

    with pytest.raises(UnsavableError, match=r"node 'leaf'.*it calls .*leaf.*state_dict"):
        file_of({"model": fx.GraphModule({}, graph)})


ROWS = [
    ("calls 'os.system'", ["call_function", "a", "os.system", ["tuple", ["ls"]], ["dict", []]]),
    ("calls 'tenon.from_file'", ["call_function", "a", "tenon.from_file", ["tuple", ["x"]], ["dict", []]]),
    (
        "calls 'operator.attrgetter'",
        ["call_function", "a", "operator.attrgetter", ["tuple", []], ["dict", []]],
    ),
    ("calls the operator 'save'", ["call_function", "a", ["aten", "save", ""], ["tuple", []], ["dict", []]]),
    ("calls the method '__reduce__'", ["call_method", "a", "__reduce__", ["tuple", [1]], ["dict", []]]),
    ("reads the attribute '__class__'", ["get_attr", "a", "__class__", ["tuple", []], ["dict", []]]),
    ("reads the attribute 'x; print", ["get_attr", "a", "x; print(1)", ["tuple", []], ["dict", []]]),
    ("has an argument", ["placeholder", "a", "x=print(1)", ["tuple", []], ["dict", []]]),
    (
        "reads the attribute",
        ["call_function", "a", "builtins.getattr", ["tuple", [1, "__class__"]], ["dict", []]],
    ),
    ("no names", ["call_method", "a", "sum", ["tuple", [1]], ["dict", [["x = print(1), y", 2]]]]),
    ("does not come before it", ["call_method", "a", "sum", ["tuple", [["node", 3]]], ["dict", []]]),
    ("not a list of op", ["run", "a", "sum", ["tuple", []], ["dict", []]]),
    ("of the kind 'call'", ["call_method", "a", "sum", ["tuple", [["call", []]]], ["dict", []]]),
]


@pytest.mark.parametrize(("message", "row"), ROWS, ids=[row[0] for row in ROWS])
def test_a_file_cannot_make_a_graph_do_what_tenon_does_not_know(message, row, monkeypatch):
    traced = fx.symbolic_trace(Model())
    genuine = saved_graphs.state_of
    monkeypatch.setattr(
        saved_graphs, "state_of", lambda module, where: {**genuine(module, where), "_nodes": [row]}
    )
    data = file_of(traced)

    with pytest.raises(CheckpointError, match=message):
        of_file(data, weights_only=False)


def test_pickles_and_copies_run_the_same_and_are_apart():
    traced = fx.symbolic_trace(Model())
    traced.meta["note"] = traced
    x = tenon.randn(3, 3)

    for other in (pickle.loads(pickle.dumps(traced)), copy.deepcopy(traced)):
        assert same(other(x), traced(x)) and other.meta["note"] is other
        assert other.linear.weight is not traced.linear.weight and type(other) is not type(traced)
        next(iter(reversed(other.graph.nodes))).args = (None,)
        other.recompile()
        assert other(x) is None and traced(x) is not None


def test_a_long_program_is_copied_and_pickled_without_recursion():
    graph = fx.Graph()
    x = graph.placeholder("x")
    for _ in range(sys.getrecursionlimit() + 20):
        x = graph.call_function(operator.neg, (x,))
    graph.output(x)

    for other in (copy.deepcopy(graph), pickle.loads(pickle.dumps(graph))):
        assert str(other) == str(graph)


def test_a_folder_is_a_package_that_computes_the_same(tmp_path, monkeypatch):
    traced = fx.symbolic_trace(Model())

    traced.to_folder(tmp_path / "written_by_fx", "Written")

    monkeypatch.syspath_prepend(tmp_path)
    written = importlib.import_module("written_by_fx").Written()
    x = tenon.randn(3, 3)
    assert same(written(x), traced(x))


def test_submodules_whose_names_are_no_names_in_python(tmp_path, monkeypatch):
    class Branches(tenon.nn.Module):
        def __init__(self):
            super().__init__()
            self.branches = tenon.nn.ModuleDict({"class": tenon.nn.Linear(3, 3), "0": tenon.nn.ReLU()})

        def forward(self, x):
            return self.branches["0"](self.branches["class"](x))

    model, x = Branches(), tenon.randn(2, 3)
    traced = fx.symbolic_trace(model)

    assert 'getattr(self.branches, "class")(x)' in traced.code
    numbered = fx.symbolic_trace(tenon.nn.Sequential(tenon.nn.Linear(3, 3)))
    numbered.to_folder(tmp_path / "numbered_by_fx", "Written")
    monkeypatch.syspath_prepend(tmp_path)
    assert tenon.equal(importlib.import_module("numbered_by_fx").Written()(x), numbered(x))
    for each in (traced, tenon.export.export(model, (x,)).module(), tenon.jit.trace(model, x)):
        assert tenon.equal(each(x), model(x))
