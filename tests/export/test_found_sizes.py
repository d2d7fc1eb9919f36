"""Expressions of several free sizes: those of images through windows, crops, pads and merges of axes."""

import pytest

import tenon
from tenon import nn
from tenon.errors import CaptureError, ShapeError
from tenon.export import capture
from tenon.export.symbolic.fitter import Fitter
from tenon.nn import functional as F

ANY = {"x": {0: "batch", 2: "height", 3: "width"}}


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(1, 2, 3, padding=1)
        self.up = nn.ConvTranspose2d(2, 2, 2, stride=2)

    def forward(self, x):
        return tenon.cat([self.up(F.max_pool2d(self.down(x), 2)), x], 1)


class Pieces(nn.Module):
    def forward(self, x):
        below = F.max_pool2d(F.pad(x, (0, -x.shape[3] % 4, 0, -x.shape[2] % 4)), 4)
        large = F.interpolate(below, scale_factor=2)
        rows, columns = x.shape[2] - large.shape[2], x.shape[3] - large.shape[3]
        padded = F.pad(large, (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2))
        return (padded + x).flatten(1)


STRIDED = nn.Sequential(
    nn.Conv2d(1, 2, 5, stride=3), nn.MaxPool2d(3, 2, 1), nn.Conv2d(2, 2, 3, 2, 2, dilation=2), nn.Flatten(1)
)


@pytest.mark.parametrize(
    ("model", "example"),
    [
        (STRIDED, (2, 1, 30, 34)),
        (nn.MaxPool2d(2, ceil_mode=True), (2, 1, 9, 12)),
        pytest.param(Pieces(), (2, 1, 24, 32), marks=pytest.mark.slow),
    ],
)
def test_a_graph_takes_images_of_any_size(model, example):
    name = "x" if isinstance(model, Pieces) else "input"

    graph = capture(model, tenon.randn(example), dynamic={name: ANY["x"]})

    for shape in ((1, 1, 29, 31), (3, 1, 40, 33), (2, 1, 50, 75)):
        x = tenon.randn(shape)
        tenon.testing.assert_close(graph.run(x), model(x))


@pytest.mark.slow
def test_sizes_that_the_model_refuses_are_refused_by_its_graph():
    model = UNet()

    graph = capture(model, tenon.randn(2, 1, 8, 12), dynamic=ANY)

    x = tenon.randn(1, 1, 6, 20)
    tenon.testing.assert_close(graph.run(x), model(x))
    assert graph.symbols["height"].least == 2
    for run in (model, graph.run):
        with pytest.raises(ShapeError):
            run(tenon.randn(1, 1, 7, 20))


def test_the_least_size_is_found_below_large_examples():
    graph = capture(nn.AvgPool1d(40, 1), tenon.ones(2, 1, 300), dynamic={"input": {2: "length"}})

    assert graph.symbols["length"].least == 40


def test_a_size_that_no_expression_gives_is_refused_with_its_place_and_what_to_do():
    def power_of_two(x):
        return F.pad(x, (0, 2 ** x.shape[1].bit_length()))

    with pytest.raises(CaptureError) as caught:
        capture(power_of_two, tenon.ones(3, 5), dynamic={"x": {0: "batch", 1: "width"}})

    message = str(caught.value)
    assert "test_found_sizes.py:" in message and "at batch = 4, width = 6" in message
    assert "It follows from width: compute it by" in message and "leave width out of dynamic=" in message


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.roll(x.shape[0] // 3, 0),
        pytest.param(lambda x: x.roll(x.shape[0] // 5, 0), marks=pytest.mark.slow),
        lambda x: x.roll(x.shape[0] % 4, 0),
        pytest.param(lambda x: (x @ x.t()).triu(1 - x.shape[0] // 2), marks=pytest.mark.slow),
        pytest.param(lambda x: x[: x.shape[0] // 3 + 1], marks=pytest.mark.slow),
        lambda x: x[-(x.shape[0] // 3) - 1 :],
    ],
    ids=["a third", "a fifth", "the rest by 4", "minus half", "first third", "last third"],
)
def test_numbers_computed_from_sizes_hold_at_sizes_that_were_not_captured(function):
    graph = capture(function, tenon.randn(3, 4), dynamic={"x": {0: "batch"}})

    for batch in range(2, 40):
        x = tenon.randn(batch, 4)
        tenon.testing.assert_close(graph.run(x), function(x), msg=f"batch = {batch}")


def test_a_number_that_has_a_limit_holds_below_it():
    def function(x):
        return x.roll(min(x.shape[0], 8) - 1, 0)

    graph = capture(function, tenon.randn(3, 4), dynamic={"x": {0: "batch"}})

    x = tenon.randn(8, 4)
    tenon.testing.assert_close(graph.run(x), function(x))
    with pytest.raises(ShapeError, match=r"decided by batch > 8 at .*test_found_sizes\.py:\d+"):
        graph.run(tenon.randn(9, 4))


def test_errors_of_the_search_are_not_taken_for_errors_of_the_function(monkeypatch):
    def broken(self, nodes):
        raise TypeError("a mistake in the search")

    monkeypatch.setattr(Fitter, "add", broken)

    with pytest.raises(TypeError, match="a mistake in the search"):
        capture(lambda x: x * 2, tenon.randn(3, 4), dynamic={"x": {0: "batch"}})


@pytest.mark.parametrize("factor", [0.3, 0.29, 1 / 3, (0.7, 1.2)])
def test_images_are_scaled_by_the_same_factor_at_all_sizes(factor):
    def function(x):
        return F.interpolate(x, scale_factor=factor, mode="bilinear")

    graph = capture(function, tenon.randn(1, 1, 12, 14), dynamic={"x": {2: "height", 3: "width"}})

    assert not graph.size_guards
    for height, width in ((6, 4), (7, 10), (10, 33), (31, 20), (39, 11)):
        x = tenon.randn(1, 1, height, width)
        tenon.testing.assert_close(graph.run(x), function(x))
