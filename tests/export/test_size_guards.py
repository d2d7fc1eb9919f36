"""Branches on sizes that may change: guards that every run checks, and decisions that no guard can state."""

import json
import math

import pytest

import tenon
from tenon import nn
from tenon.errors import BundleError, CaptureError, LoweringError, ShapeError
from tenon.export import CompiledRunner, Runner, capture, lower, save, unflatten, verify
from tenon.export.bundle import load
from tenon.export.symbolic.traced_numbers import TracedSize
from tenon.nn import functional as F
from tenon.testing.suites.reference_target import ReferenceTarget

ANY = {"x": {0: "n"}}


def guards(graph):
    return [guard.text().partition("  #")[0] for guard in graph.size_guards]


def branch(x):
    if x.shape[0] > 20:
        return x.relu()
    return x * 2


def least(x):
    return x.roll(max(x.size(0), 3), 0)


def halves(x):
    first, last = x[: x.shape[0] // 2], x[x.shape[0] // 2 :]
    return first + last if x.shape[0] % 2 == 0 else first.sum() + last


def rounds(x):
    for _ in range(x.shape[0] // 100):
        x = x + 1
    return x * 1


def bucket(x):
    return x * [1.0, 2.0, 3.0][min(x.size(0) // 64, 2)]


def of_a_result(x):
    y = x[::2]
    return y.relu() if y.shape[0] >= 6 else y * 2


def of_elements(x):
    return x.relu() if not x.numel() <= 40 else x * 2


def of_a_float(x):
    return x.relu() if x.shape[0] / 2 > 10 else x * 2


@pytest.mark.parametrize(
    ("function", "example", "expected", "good", "bad"),
    [
        (branch, 3, ["guard n > 20 is False"], (1, 20), (21, 300)),
        (branch, 40, ["guard n > 20 is True"], (21, 300), (1, 20)),
        pytest.param(least, 5, ["guard n < 3 is False"], (3, 9), (2,), marks=pytest.mark.slow),
        (halves, 4, ["guard n % 2 == 0 is True"], (2, 8, 30), (7, 9)),
        pytest.param(rounds, 3, ["guard n//100 == 0 is True"], (1, 99), (100,), marks=pytest.mark.slow),
        (bucket, 3, ["guard n//64 > 2 is False", "guard n//64 == 0 is True"], (1, 63), (64, 200)),
        (of_a_result, 5, ["guard (n + 1)//2 >= 6 is False"], (1, 10), (11,)),
        pytest.param(of_elements, 5, ["guard 4*n <= 40 is True"], (10,), (11,), marks=pytest.mark.slow),
        pytest.param(of_a_float, 5, ["guard n > 20 is False"], (20,), (21,), marks=pytest.mark.slow),
    ],
)
def test_a_branch_on_a_size_is_a_guard_of_every_run(function, example, expected, good, bad):
    graph = capture(function, tenon.randn(example, 4), dynamic=ANY)

    assert guards(graph) == expected
    line = r"test_size_guards\.py:\d+.* for n = "
    for run in (graph.run, Runner(graph), CompiledRunner(graph), unflatten(graph)):
        for size in good:
            x = tenon.randn(size, 4)
            tenon.testing.assert_close(run(x), function(x))
        for size in bad:
            with pytest.raises(ShapeError, match=line):
                run(tenon.randn(size, 4))


def test_the_text_states_the_guard_and_its_line():
    graph = capture(branch, tenon.ones(3, 4), dynamic=ANY)

    assert str(graph).splitlines()[-1].startswith("guard n > 20 is False  # ")
    with pytest.raises(ShapeError, match=r"decided by n > 20 at .*py:\d+, .*False .* is True for n = 25"):
        graph.at(n=25)
    assert not graph.at(n=20).size_guards


def test_the_branch_is_that_of_the_example():
    def narrow(limit):
        return lambda x: x.relu() if x.shape[0] > limit else x * 2

    assert guards(capture(narrow(5), tenon.ones(3), dynamic=ANY)) == ["guard n > 5 is False"]
    with pytest.raises(CaptureError, match=r"branches by sizes at .*test_size_guards\.py:\d+: .* > 2 is"):
        capture(narrow(2), tenon.ones(2), dynamic=ANY)


def test_comparisons_that_have_one_answer_need_no_guard():
    def function(x, y):
        assert x.shape[1] == 4 and x.shape[0] == y.shape[0] and x.shape[0] + 1 > 0 and len(x.shape) == 2
        return (x.reshape(-1).view(x.size(0), 4) + y).flatten()

    graph = capture(function, tenon.ones(3, 4), tenon.ones(3, 4), dynamic={"x": {0: "n"}, "y": {0: "n"}})

    assert not graph.size_guards and str(graph).endswith("return %3")


def test_a_rest_that_was_the_same_in_all_captures_is_found_to_change():
    def padded(x):
        return F.pad(x, (0, 0, 0, -x.shape[0] % 3)).reshape(-1, 3, 4).sum(1)

    graph = capture(padded, tenon.randn(3, 4), dynamic=ANY)

    assert not graph.size_guards
    for size in range(1, 12):
        x = tenon.randn(size, 4)
        tenon.testing.assert_close(graph.run(x), padded(x))


@pytest.mark.parametrize(
    ("function", "match"),
    [
        (lambda x: x.relu() if len(x) > 20 else x * 2, r"by len\(\)"),
        (lambda x: x.relu() if int(x.shape[0]) > 20 else x * 2, r"by int\(\)"),
        (lambda x: x.relu() if math.sqrt(x.shape[0]) > 20 else x * 2, r"by float\(\)"),
        (lambda x: x.relu() if x.shape[0] in {80, 90} else x * 2, "in a set or dict"),
        (
            lambda x: x.relu() if x.shape[0] ** 0.5 > 9 else x * 2,
            "compares .* computed from n in another way",
        ),
    ],
    ids=["len", "int", "sqrt", "set", "root"],
)
def test_a_decision_that_no_guard_can_state_is_refused_with_its_line(function, match):
    with pytest.raises(CaptureError, match=rf"{match}.*test_size_guards\.py:\d+"):
        capture(function, tenon.ones(3, 4), dynamic=ANY)


def test_a_plain_number_that_decides_later_is_refused():
    def function(x):
        count = len(x)
        half = count + 1
        if half > 20:
            x = x.relu()
        return x * 2

    with pytest.raises(CaptureError, match=r"in line \d+, by a plain number made of n by len\(\)"):
        capture(function, tenon.ones(3, 4), dynamic=ANY)


def test_plain_numbers_that_are_only_sizes_are_accepted():
    def function(x):
        rows, scale = len(x), 1 / math.sqrt(x.shape[0])
        return x.reshape(int(rows), 4) * scale

    graph = capture(function, tenon.ones(3, 4), dynamic=ANY)

    x = tenon.randn(30, 4)
    tenon.testing.assert_close(graph.run(x), function(x), rtol=1e-5, atol=0)


def test_a_size_that_is_returned_is_refused():
    with pytest.raises(CaptureError, match=r"returns \[4\] for n = 4 and \[7\] for n = 7: .*torch.tensor"):
        capture(lambda x: (x, x.shape[0]), tenon.ones(3, 4), dynamic=ANY)


def test_sizes_are_plain_integers_after_the_capture():
    kept = []

    def function(x):
        kept.append(x.shape[0])
        return x * 2

    capture(function, tenon.ones(3, 4), dynamic=ANY)

    assert type(kept[0]) is TracedSize and isinstance(kept[0], int) and json.dumps(kept[0]) == str(kept[0])
    for result in (kept[0] + 1, kept[0] // 2, -kept[0], kept[0] % 2, kept[0] / 2):
        assert type(result) in (int, float)
    assert type(tenon.ones(3).shape[0]) is int and type(tenon.ones(3).numel()) is int


def test_lowered_graphs_keep_their_guards():
    graph = capture(lambda x: x.softmax(1) if x.shape[0] % 2 else x, tenon.randn(5, 4), dynamic=ANY)

    lowered = lower(graph, {"sub", "exp", "sum", "div", "amax"})

    assert lowered.size_guards == graph.size_guards != []
    with pytest.raises(ShapeError, match="n % 2"):
        lowered.run(tenon.randn(4, 4))


class Flexible(ReferenceTarget):
    dynamic = True


def test_bundles_keep_guards_and_targets_that_do_not_check_them_refuse(tmp_path):
    graph = capture(branch, tenon.ones(3, 4), dynamic=ANY)

    folder = save(graph, tmp_path / "model", targets=["numpy"], calls=[(tenon.ones(2, 4),)])

    assert verify(folder).passed
    read = load(folder).graph
    assert guards(read) == guards(graph)
    with pytest.raises(ShapeError, match=r"n > 20 at test_size_guards\.py"):
        read.run(tenon.ones(30, 4))
    with pytest.raises(LoweringError, match=r"cannot check .*guard n > 20 is False"):
        save(graph, tmp_path / "other", targets=[Flexible()])


@pytest.mark.parametrize(
    "change",
    [{"question": "bool"}, {"answer": 1}, {"left": {"size": "m"}}, {"right": "1"}, {"more": 1}, {"right": 1}],
)
def test_hostile_guards_are_refused(tmp_path, change):
    graph = capture(branch, tenon.ones(3, 4), dynamic=ANY)
    document, arrays = tenon.export.schema.to_document(graph)
    document = json.loads(json.dumps(document))
    document["size_guards"][0] |= change

    with pytest.raises(BundleError):
        tenon.export.schema.from_document(document, arrays, "graph.json")


class Gate(nn.Module):
    def forward(self, x):
        return x.relu() if x.shape[0] > 20 else x * 2


def test_programs_and_traces_check_guards():
    dim = tenon.export.Dim("n")
    program = tenon.export.export(Gate(), (tenon.ones(3, 4),), dynamic_shapes={"x": {0: dim}})
    traced = tenon.jit.trace(Gate(), (tenon.ones(3, 4),))

    elementwise = tenon.jit.trace(lambda x: x.relu() if x.shape[0] > 20 else x * 2, (tenon.ones(3, 4),))
    for run in (program.module(), traced, elementwise):
        tenon.testing.assert_close(run(tenon.ones(20, 4)), tenon.full((20, 4), 2.0))
        with pytest.raises(ShapeError, match=r"test_size_guards\.py:\d+"):
            run(tenon.ones(21, 4))


def test_choices_among_equal_computations_are_no_guards():
    def function(x):
        return x.abs() ** x.shape[0] + x[x.shape[0] // 2] + x[-x.shape[0] :] + x.narrow(0, 0, x.shape[0])

    graph = capture(function, tenon.ones(3, 4), dynamic=ANY)

    assert not graph.size_guards
    for size in (2, 16, 40):
        x = tenon.rand(size, 4)
        tenon.testing.assert_close(graph.run(x), function(x))
