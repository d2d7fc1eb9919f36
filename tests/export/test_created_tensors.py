"""Tensors that Python creates from free sizes: identity matrices, grids, masks, and numbers beside tensors."""

import pytest

import tenon as torch
from tenon.errors import CaptureError, ShapeError
from tenon.export import capture
from tenon.nn import functional as F

ANY = {"x": {0: "n"}}
SIZES = (2, 3, 4, 5, 8, 13)


def positions(x):
    n = x.shape[0]
    return (
        torch.arange(n)[:, None] * x
        + torch.arange(n - 1, -1, -1)[:, None]
        + torch.arange(0, 2 * n, 2)[:, None]
    )


FUNCTIONS = [
    lambda x: (x > x.shape[0] // 2, x * (x.shape[0] // 3 + 1), torch.where(x > 0, x, x.shape[0] % 3)),
    lambda x: torch.eye(x.shape[0]) @ x,
    lambda x: (x @ x.t()).masked_fill(torch.eye(x.shape[0], dtype=torch.bool), -1.0),
    lambda x: torch.eye(x.shape[0], 3),
    lambda x: torch.kron(torch.eye(x.shape[0]), torch.ones(2, 2)),
    lambda x: torch.linspace(0, 1, x.shape[0])[:, None] * x,
    lambda x: torch.linspace(1, -x.shape[0] / 3, 2 * x.shape[0], dtype=torch.float64),
    lambda x: torch.stack(
        torch.meshgrid(torch.linspace(-1, 1, x.shape[0]), torch.arange(3.0), indexing="ij")
    ),
    lambda x: (torch.full((x.shape[0], 2), x.shape[0]), torch.full_like(x, 2 * x.shape[0] - 1)),
    lambda x: (torch.tensor(x.shape[0]) * x, torch.tensor([x.shape[0], 4]).sum()),
    lambda x: x.new_full((x.shape[0],), 1 / x.shape[0]) + torch.full((1,), x.shape[0] / 3),
    positions,
    lambda x: x.repeat_interleave(2, 0) + x.repeat_interleave(x.shape[0], 1).sum(),
    lambda x: torch.ones(x.shape[0], x.shape[0]).triu(x.shape[0] // 2),
    lambda x: F.layer_norm(x.t(), (x.shape[0],)),
]


@pytest.mark.together
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.slow
def test_created_tensors_are_those_of_each_size(function):
    graph = capture(function, torch.randn(6, 4), dynamic=ANY)

    for size in SIZES:
        x = torch.randn(size, 4)
        own, expected = graph.run(x), function(x)
        torch.testing.assert_close(own, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "function",
    [lambda x: torch.hann_window(x.shape[0]), lambda x: torch.tril_indices(x.shape[0], x.shape[0])],
)
def test_other_created_tensors_are_refused_with_their_line(function):
    line = function.__code__.co_firstlineno

    with pytest.raises(CaptureError, match=rf"test_created_tensors\.py:{line} .* Compute it by ops"):
        capture(function, torch.randn(6, 4), dynamic=ANY)


def test_numbers_that_no_expression_gives_are_shown():
    with pytest.raises(CaptureError, match=r"its argument 1 is \d\.25 for n = .* and \d\.25 for n = "):
        capture(lambda x: x * (x.shape[0].bit_length() + 0.25), torch.randn(7, 4), dynamic=ANY)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * [1.0, 2.0, 5.0][min(x.shape[0] // 64, 2)],
        lambda x: torch.full((x.shape[0],), [1, 2, 5][min(x.shape[0] // 64, 2)]),
    ],
)
def test_numbers_of_a_table_are_guarded(function):
    graph = capture(function, torch.randn(6, 4), dynamic=ANY)

    assert "n//64 == 0" in str(graph)
    assert torch.equal(graph.run(torch.ones(63, 4)), function(torch.ones(63, 4)))
    for size in (64, 130):
        with pytest.raises(ShapeError, match="n//64 == 0"):
            graph.run(torch.ones(size, 4))
