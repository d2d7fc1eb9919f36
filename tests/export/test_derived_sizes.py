"""Sizes computed from others: ``2*batch`` in ``dynamic=``, ``2 * Dim("batch")`` in ``dynamic_shapes=``."""

import importlib.util

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.errors import ArgumentError, BundleError, CaptureError, LoweringError, ShapeError
from tenon.export import Dim, capture, export, load, save, verify
from tenon.export.document import to_document
from tenon.export.schema import from_document
from tenon.testing.suites.reference_target import ReferenceTarget


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x, y):
        return self.linear(tenon.cat([x, x])) + self.linear(y)


def totals(x, y):
    return x.sum(0) + y.sum(0)


DOUBLE = {"x": {0: "batch"}, "y": {0: "2*batch"}}


@pytest.mark.parametrize(
    ("sizes", "shapes"),
    [
        (("n", "2*n"), [(3, 6), (1, 2)]),
        (("n", "n + 1"), [(3, 4), (9, 10)]),
        (("n - 1", "n"), [(3, 4), (9, 10)]),
        (("2*n", "3*n + 3"), [(4, 9), (2, 6), (20, 33)]),
        (("n", "n//2"), [(5, 2), (12, 6)]),
    ],
)
def test_a_graph_takes_the_sizes_that_follow_and_no_others(sizes, shapes):
    def function(x, y):
        return x.mean(0) * x.shape[0] + y.mean(0)

    example = [tenon.randn(n, 3) for n in shapes[0]]
    graph = capture(function, *example, dynamic=dict(zip("xy", ({0: size} for size in sizes), strict=True)))

    for one, other in shapes:
        x, y = tenon.randn(one, 3), tenon.randn(other, 3)
        assert tenon.allclose(graph.run(x, y), function(x, y), atol=1e-5)
        with pytest.raises(ShapeError, match=r"dimension 0 of argument '[xy]' is \d+"):
            graph.run(x, tenon.randn(other + 1, 3))


def test_a_size_that_does_not_follow_is_refused_with_where_the_others_come_from():
    graph = capture(totals, tenon.ones(4, 3), tenon.ones(8, 3), dynamic=DOUBLE)

    match = r"'y' is 9; it has to be 2\*batch = 10, as batch = 5 in dimension 0 of argument 'x'"
    with pytest.raises(ShapeError, match=match):
        graph.run(tenon.ones(5, 3), tenon.ones(9, 3))


def test_a_symbol_that_is_not_a_size_itself_follows_from_a_multiple():
    graph = capture(
        totals, tenon.ones(4, 3), tenon.ones(9, 3), dynamic={"x": {0: "2*n"}, "y": {0: "3*n + 3"}}
    )

    assert graph.symbols["n"].example == 2
    assert str(graph.run(tenon.ones(6, 3), tenon.ones(12, 3)).tolist()) == "[18.0, 18.0, 18.0]"
    with pytest.raises(ShapeError, match=r"'x' is 5, which no value of n gives for 2\*n"):
        graph.run(tenon.ones(5, 3), tenon.ones(12, 3))


@pytest.mark.parametrize(
    ("dynamic", "match"),
    [
        ({"x": {0: "n"}, "y": {0: "3*n"}}, r"'y' is 8; it has to be 3\*n = 12, as n = 4"),
        ({"x": {0: "n//2"}}, "no axis from which 'n' follows"),
        ({"x": {0: "n*m"}, "y": {0: "n"}}, "no axis from which 'm' follows"),
        ({"x": {0: "n - 9"}, "y": {0: "-n"}}, r"has to be -n|which is not a name"),
        ({"x": {0: "2*"}}, "which is not a name"),
        ({"x": {0: "2"}}, "which is not a name"),
        ({"x": {0: "f(n)"}}, "which is not a name"),
        ({"x": {0: "n/2"}}, "which is not a name"),
        ({"x": {0: "n//0"}}, "which is not a name"),
        ({"x": {0: 2}}, "which is not a name"),
        ({"x": {0: "(" * 300}}, "which is not a name"),
    ],
)
def test_declarations_that_make_no_sense_are_refused(dynamic, match):
    with pytest.raises(ArgumentError, match=match):
        capture(totals, tenon.ones(4, 3), tenon.ones(8, 3), dynamic=dynamic)


def test_lowering_keeps_declared_sizes():
    graph = capture(Twice().eval(), tenon.ones(4, 3), tenon.ones(8, 3), dynamic=DOUBLE)

    lowered = tenon.export.lower(graph, {"matmul", "transpose", "permute", "add", "cat"})

    assert "linear" not in {node.name for node in lowered.calls}
    assert str(lowered.with_sizes(lowered.arguments[1]).avals[0]) == "float32[2*batch, 3]"


def test_files_keep_derived_sizes_and_refuse_those_that_nothing_determines():
    graph = capture(totals, tenon.ones(4, 3), tenon.ones(8, 3), dynamic=DOUBLE)
    document, arrays = to_document(graph)

    read = from_document(document, arrays, "file")
    assert [str(read.with_sizes(node).avals[0]) for node in read.arguments] == [
        "float32[batch, 3]",
        "float32[2*batch, 3]",
    ]
    document["nodes"][0]["shape"][0] = {"size": "batch*batch"}
    document["nodes"][1]["shape"][0] = {"size": "batch//2"}
    with pytest.raises(BundleError, match="no size of an argument determines the symbol 'batch'"):
        from_document(document, arrays, "file")


class Flexible(ReferenceTarget):
    dynamic = True


def test_a_bundle_takes_derived_sizes_but_no_symbol_without_an_axis(tmp_path):
    example = (tenon.ones(4, 3), tenon.ones(8, 3))
    graph = capture(Twice().eval(), *example, dynamic=DOUBLE)
    save(graph, tmp_path / "a", calls=[(tenon.randn(3, 3), tenon.randn(6, 3))], targets=[Flexible()])

    assert verify(tmp_path / "a", found=[Flexible()]).passed
    assert load(tmp_path / "a").graph.run(tenon.ones(7, 3), tenon.ones(14, 3)).shape == (14, 2)
    lone = capture(totals, *example, dynamic={"y": {0: "2*n"}})
    with pytest.raises(LoweringError, match=r"none of them is 'n' itself.*graph.at\(n=4\)"):
        save(lone, tmp_path / "b", targets=[Flexible()])


@pytest.mark.slow
def test_the_numpy_runner_refuses_sizes_that_do_not_follow(tmp_path):
    graph = capture(totals, tenon.ones(4, 3), tenon.ones(8, 3), dynamic=DOUBLE)
    save(graph, tmp_path / "a", targets=["numpy"])
    spec = importlib.util.spec_from_file_location("derived_runner", tmp_path / "a" / "numpy" / "runner.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    runner = module.Runner()

    result = runner.run(np.ones((5, 3), np.float32), np.ones((10, 3), np.float32))

    assert result.tolist() == [15.0, 15.0, 15.0]
    with pytest.raises(ValueError, match=r"input 'y' has size 9; it must have 2\*batch = 10"):
        runner.run(np.ones((5, 3), np.float32), np.ones((9, 3), np.float32))


def test_computed_dims_have_names_and_ranges():
    b = Dim("batch", min=2, max=16)

    found = [(d.__name__, d.min, d.max) for d in (2 * b, b - 1, 2 * (b + 1), (b + 1) * 2 - 2, b + 0)]

    assert found == [
        ("2*batch", 4, 32), ("batch - 1", 1, 15), ("2*batch + 2", 6, 34), ("2*batch", 4, 32), ("batch", 2, 16),
    ]  # fmt: skip
    with pytest.raises(NotImplementedError, match=r"Attempted to multiply 1\.5 with batch"):
        b * 1.5


def test_a_computed_dim_may_not_be_negative():
    with pytest.raises(ValueError, match="Expected derived min value of batch - 3 to be >= 0"):
        Dim("batch", min=2) - 3


def test_a_program_has_computed_sizes_and_their_ranges(tmp_path):
    batch = Dim("batch", min=2, max=16)
    x, y = tenon.randn(4, 3), tenon.randn(8, 3)
    model = Twice().eval()

    program = export(model, (x, y), dynamic_shapes=({0: batch}, {0: 2 * batch}))
    tenon.export.save(program, tmp_path / "program.pt2")
    again = tenon.export.load(tmp_path / "program.pt2").module()

    assert program.range_constraints == {"batch": (2, 16), "2*batch": (4, 32)}
    x, y = tenon.randn(5, 3), tenon.randn(10, 3)
    assert tenon.allclose(again(x, y), model(x, y), atol=1e-6)
    for wrong in ((5, 9), (17, 34)):
        with pytest.raises(ShapeError):
            again(*(tenon.ones(size, 3) for size in wrong))


def test_a_program_computes_a_symbol_from_a_multiple_of_it():
    batch = Dim("batch", min=2, max=16)

    class Scaled(nn.Module):
        def forward(self, x):
            return x.reshape(x.shape[0] // 2, 2, 3).sum(1)

    program = export(Scaled(), (tenon.ones(8, 3),), dynamic_shapes=({0: 2 * batch},))

    assert program.module()(tenon.ones(12, 3)).shape == (6, 3)
    assert program.range_constraints == {"batch": (2, 16), "2*batch": (4, 32)}


def test_an_independent_dim_that_must_follow_is_refused_with_the_form():
    class Shifted(nn.Module):
        def forward(self, x, y):
            return x + y[1:]

    shapes = ({0: Dim("batch")}, {0: Dim("other")})
    with pytest.raises(CaptureError, match=r"Suggested fixes:\n  other = batch \+ 1$"):
        export(Shifted(), (tenon.ones(4, 3), tenon.ones(5, 3)), dynamic_shapes=shapes)
    batch = Dim("batch")
    program = export(
        Shifted(), (tenon.ones(4, 3), tenon.ones(5, 3)), dynamic_shapes=({0: batch}, {0: batch + 1})
    )
    assert program.module()(tenon.ones(2, 3), tenon.ones(3, 3)).shape == (2, 3)
