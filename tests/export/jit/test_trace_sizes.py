"""Sizes of the arguments of traces: those that may change do, others are refused with the reason."""

import copy
import math

import pytest

import tenon
from tenon import jit, nn
from tenon.errors import ArgumentError, ShapeError
from tenon.export.symbolic import fitter


@pytest.fixture(autouse=True)
def _seed():
    tenon.manual_seed(0)


def convolutions():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2),
    ).eval()  # fmt: skip


def attention():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 1).eval()


@pytest.mark.parametrize(
    ("make", "example", "others"),
    [
        (lambda: nn.Linear(3, 2), (1, 3), [(4, 3), (0, 3)]),
        (convolutions, (1, 3, 16, 16), [(4, 3, 16, 16), (2, 3, 23, 18)]),
        (attention, (2, 5, 8), [(3, 9, 8), (1, 1, 8)]),
        (lambda: nn.LSTM(3, 2), (5, 2, 3), [(5, 4, 3)]),
    ],
)
def test_sizes_change_where_the_model_does_the_same(make, example, others):
    model = make()
    traced = jit.trace(model, tenon.randn(*example))

    for shape in [example, *others]:
        x = tenon.randn(*shape)
        expected, found = model(x), traced(x)
        if isinstance(expected, tuple):
            expected, found = expected[0], found[0]
        assert tenon.allclose(found, expected, atol=1e-6)


def test_numbers_computed_from_sizes_follow_them():
    traced = jit.trace(lambda x: x.sum(0) / len(x), tenon.ones(3, 2))
    assert traced(tenon.ones(5, 4)).tolist() == [1] * 4
    norm = nn.BatchNorm1d(3)
    traced, x = jit.trace(norm, tenon.randn(4, 3)), tenon.randn(9, 3)
    own = copy.deepcopy(norm)
    traced(x).sum().backward()
    own(x).sum().backward()
    assert tenon.allclose(norm.running_var, own.running_var)
    assert tenon.allclose(norm.weight.grad, own.weight.grad)


@pytest.mark.slow
def test_sizes_in_python_become_expressions():
    def function(x):
        batch, width = x.shape
        halves = x[:, : width // 2].reshape(batch, -1, 2)
        return halves.sum(2) + tenon.arange(width // 4) + tenon.zeros(len(x), 1)

    traced = jit.trace(function, tenon.randn(3, 8))
    for shape in ((3, 8), (5, 16), (1, 12)):
        x = tenon.randn(*shape)
        assert tenon.equal(traced(x), function(x))
    assert "// 4" in traced.code or "//4" in str(traced.graph)


def test_pointwise_functions_take_any_shape():
    def function(x, y):
        return (x * y).sin() + x.sum()

    traced = jit.trace(function, (tenon.ones(3), tenon.ones(3)))
    for a, b in (((2, 2), (2, 2)), ((), ()), ((4, 1), (1, 5)), ((3, 2, 1), (7,))):
        x, y = tenon.randn(*a), tenon.randn(*b)
        assert tenon.equal(traced(x, y), function(x, y))


def test_sizes_of_several_arguments_that_are_the_same_change_together():
    traced = jit.trace(lambda a, x: a @ x, (tenon.randn(4, 4), tenon.randn(4, 2)))
    assert traced(tenon.randn(6, 6), tenon.randn(6, 3)).shape == (6, 3)

    def masked(x, mask):
        return x.masked_fill(mask.unsqueeze(-1), 0).mean(1)

    example = tenon.randn(2, 3, 4), tenon.zeros(2, 3).bool()
    traced = jit.trace(masked, example)
    assert traced(tenon.randn(5, 7, 4), tenon.zeros(5, 7).bool()).shape == (5, 4)
    with pytest.raises(ShapeError, match=r"dimension 0 of 'x' and dimension 0 of 'mask' are the same size"):
        traced(tenon.randn(5, 7, 4), tenon.zeros(4, 7).bool())


def test_sizes_that_cannot_change_are_refused_with_the_reason():
    linear = jit.trace(nn.Linear(3, 2), tenon.ones(1, 3))
    with pytest.raises(
        ShapeError, match=r"trace of Linear holds for 'input' of shape \[batch, 3\].*dimension 1"
    ):
        linear(tenon.ones(1, 4))
    with pytest.raises(ShapeError, match=r"of shape \[batch, 3\], but was given \[3\]"):
        linear(tenon.ones(3))
    with pytest.raises(ArgumentError, match="takes a tensor as 'input', but was given a float"):
        linear(1.0)

    def shifted(x):
        return x + math.cos(len(x))  # no simple function of the size

    traced = jit.trace(shifted, tenon.zeros(3, 2))
    assert tenon.equal(traced(tenon.zeros(3, 5)), shifted(tenon.zeros(3, 5)))
    with pytest.raises(ShapeError, match=r"dimension 0 is fixed \(.*test_trace_sizes.py"):
        traced(tenon.ones(4, 2))


def test_sizes_can_be_stated():
    calls = []

    def function(x):
        calls.append(tuple(x.shape))
        return x * 2 + x.sum(1, keepdim=True)

    traced = jit.trace(function, tenon.ones(3, 4), check_trace=False, dynamic={})
    assert calls == [(3, 4)]
    with pytest.raises(ShapeError, match="dimension 0 is fixed"):
        traced(tenon.ones(5, 4))
    traced = jit.trace(function, tenon.ones(3, 4), dynamic={"x": {0: "rows"}})
    assert traced(tenon.ones(5, 4)).shape == (5, 4)
    assert "float32[rows, 4]" in str(traced.graph)


def test_what_the_function_prints_is_printed_once_per_trace(capsys):
    def function(x):
        print("called")
        return x.reshape(-1) * 2

    jit.trace(function, tenon.ones(3, 4), check_trace=False)
    assert capsys.readouterr().out == "called\n"


@pytest.mark.slow
def test_sizes_that_an_earlier_trace_found_are_found_again():
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x = tenon.randn(2, 5, 8)
    fitter._SEARCHED.clear()
    found = [(str(tenon.jit.trace(model, x).graph), len(fitter._SEARCHED)) for _ in range(2)]

    assert found[0] == found[1] and found[0][1] > 5
    assert tenon.jit.trace(model, x)(tenon.randn(3, 7, 8)).shape == (3, 7, 8)
