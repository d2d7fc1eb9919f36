"""Axes of free sizes that are cut into parts: the sizes of these are computed as the code does."""

import re

import pytest

import tenon
from tenon.errors import CaptureError, ShapeError
from tenon.export import capture

CUT = {
    "tensor_split": lambda x: x.tensor_split(3),
    "tensor_split at indices": lambda x: x.tensor_split((1, 3)),
    "chunk in two": lambda x: x.chunk(2),
    "chunk in three": lambda x: x.chunk(3),
    "split in halves": lambda x: x.split(x.shape[0] // 2),
    "split in a list": lambda x: x.split([1, x.shape[0] // 3, x.shape[0] - 1 - x.shape[0] // 3]),
}


@pytest.mark.together
@pytest.mark.parametrize("name", CUT)
@pytest.mark.parametrize("example", [6, 10])
def test_parts_have_the_sizes_of_the_function_or_are_refused(name, example):
    function = CUT[name]

    graph = capture(lambda x: [*function(x)], tenon.randn(example, 2), dynamic={"x": {0: "n"}})

    right = []
    for n in range(1, 15):
        x = tenon.randn(n, 2)
        try:
            result = graph.run(x)
        except ShapeError:
            continue
        expected = function(x)
        assert [len(part) for part in result] == [len(part) for part in expected], n
        assert all(map(tenon.equal, result, expected)), n
        right.append(n)
    assert example in right
    assert len(right) >= (7 if "halves" in name else 11)


@pytest.mark.parametrize("squeeze", [lambda x: x.squeeze(), lambda x: x.squeeze(0)])
def test_axes_of_size_one_that_would_be_removed_are_refused(squeeze):
    graph = capture(squeeze, tenon.ones(6, 1), dynamic={"x": {0: "n"}})

    assert graph.run(tenon.ones(3, 1)).shape == squeeze(tenon.ones(3, 1)).shape
    with pytest.raises(ShapeError, match=r"decided by n == 1 at .*test_cut_sizes.py"):
        graph.run(tenon.ones(1, 1))
    assert not capture(lambda x: x.squeeze(1), tenon.ones(6, 1), dynamic={"x": {0: "n"}}).size_guards


def test_lists_of_indices_follow_the_sizes():
    graph = capture(lambda x: x[[0, x.shape[0] - 1]], tenon.ones(6), dynamic={"x": {0: "n"}})

    x = tenon.arange(9.0)
    assert tenon.equal(graph.run(x), tenon.tensor([0.0, 8.0]))
    with pytest.raises(CaptureError, match="made from Python data has other values"):
        capture(lambda x: x[[0, x.shape[0] - 1, 1]], tenon.ones(6), dynamic={"x": {0: "n"}})


def test_a_number_of_parts_that_changes_is_refused_with_the_line():
    def function(x):
        return x.split(2)[0]

    line = function.__code__.co_firstlineno + 1
    with pytest.raises(CaptureError, match=re.escape(f"branches by sizes at {__file__}:{line}")):
        capture(function, tenon.ones(6), dynamic={"x": {0: "n"}})
