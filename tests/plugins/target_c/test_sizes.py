"""Sizes that may change: one program for all of them, with memory for the largest."""

import numpy as np
import pytest
from tests.plugins.target_c.programs import Quick, sanitized
from tests.plugins.target_c.test_entry import BAD_SHAPE, Program, given

import tenon as t
from tenon import nn
from tenon.errors import LoweringError
from tenon.export import capture
from tenon.export.vectors import make_vectors
from tenon_target_c.target import CTarget

MOST = 16


def captured(model, example, dynamic, most=MOST, least=1):
    graph = capture(model, *example, dynamic=dynamic)
    for name, symbol in graph.symbols.items():
        graph.symbols[name] = symbol.bounded(least, most)
    return graph


def test_a_run_takes_its_size_from_the_inputs(tmp_path):
    t.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    CTarget().write(captured(model, (t.randn(5, 3),), {"input": {0: "batch"}}), None, tmp_path)
    program = Program(tmp_path)
    program.load()

    for size in (1, 2, 7, MOST):
        x, out = t.randn(size, 3), np.zeros((size, 2), np.float32)
        assert program.run([given(x.numpy())], [given(out)]) == 0
        np.testing.assert_allclose(out, model(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    assert (
        program.run([given(np.zeros((0, 3), np.float32))], [given(np.zeros((0, 2), np.float32))]) == BAD_SHAPE
    )
    for inputs, outputs in ((MOST + 1, MOST + 1), (4, 5), (4, 3)):
        arrays = np.zeros((inputs, 3), np.float32), np.zeros((outputs, 2), np.float32)
        assert program.run([given(arrays[0])], [given(arrays[1])]) == BAD_SHAPE
    flat = np.zeros(12, np.float32)
    assert program.run([given(flat)], [given(np.zeros((4, 2), np.float32))]) == BAD_SHAPE
    assert program.message == (
        "input input: an argument of another shape than the model was exported with; expected [12, 3], got [12]; "
        "batch is 1 to 16"
    )


def test_what_has_no_program_for_all_sizes_is_refused():
    unlimited = capture(nn.Linear(3, 2), t.randn(5, 3), dynamic={"input": {0: "batch"}})
    table = captured(lambda x: t.diag_embed(x), (t.randn(5, 3),), {"x": {0: "batch"}})

    with pytest.raises(
        LoweringError, match=r"for the largest sizes, and batch has no limit.*bounded\(1, 64\)"
    ):
        CTarget().lowered(unlimited)
    with pytest.raises(
        LoweringError, match=r"more memory, or memory of another type|a constant table differs at batch = 15"
    ):
        CTarget().write(table, None, None)


def test_numbers_that_follow_from_sizes_are_arguments_of_steps(tmp_path):
    graph = captured(
        lambda x: (x.var(0) / x.shape[0], x.roll(1, 0).tril()), (t.randn(5, 3),), {"x": {0: "n"}}
    )

    CTarget().write(CTarget().lowered(graph), None, tmp_path)

    program = (tmp_path / "model.c").read_text()
    assert "k_roll_f32(" in program and "k_triangle_f32(" in program
    assert program.count("n_n") > 6  # lengths of loops and axes, the count of the variance, the divisor


def test_sizes_for_which_code_needs_more_elements_are_refused():
    graph = capture(lambda x: x[:2], t.randn(5, 3), dynamic={"x": {0: "batch"}})
    assert graph.symbols["batch"].least == 2

    graph.symbols["batch"] = graph.symbols["batch"].bounded(1, MOST)

    with pytest.raises(LoweringError, match=r"does not hold for batch = 1: .*bounded\(LEAST, MOST\)"):
        CTarget().write(graph, None, None)


def test_a_slice_may_need_as_many_elements_as_the_range_has_at_least(tmp_path):
    graph = captured(lambda x: x[:6] + 1, (t.randn(8, 3),), {"x": {0: "rows"}}, least=6)
    CTarget().write(CTarget().lowered(graph), None, tmp_path)
    program = Program(tmp_path)
    program.load()

    for size in (6, 7, MOST):
        x, out = np.ones((size, 3), np.float32), np.zeros((6, 3), np.float32)
        assert program.run([given(x)], [given(out)]) == 0
        assert (out == 2).all()
    assert program.run([given(np.ones((5, 3), np.float32))], [given(out)]) == BAD_SHAPE


class Parts(nn.Module):
    def forward(self, x):
        return (
            x.mean(0),
            x.sum(1),
            x.flip(0),
            t.cat([x, x], 0),
            x[1:],
            x.argmax(0),
            x.sort(0),
            x[x.shape[0] // 2],
        )


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.norm = nn.Linear(12, 36), nn.LayerNorm(12)

    def forward(self, x):
        n, length, width = x.shape
        q, k, v = (p.view(n, length, 3, 4).transpose(1, 2) for p in self.qkv(self.norm(x)).split(width, 2))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + y.transpose(1, 2).reshape(n, length, width)


def images():
    layers = (
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 8, 3),
    )
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)).eval()


CASES = {
    "images": (images, lambda n: (t.randn(n, 1, 8, 8),), {"input": {0: "batch"}}),
    "parts": (Parts, lambda n: (t.randn(n, 5),), {"x": {0: "batch"}}),
    "lstm": (lambda: nn.LSTM(4, 8), lambda n: (t.randn(5, n, 4),), {"input": {1: "batch"}}),
    "tokens": (Attention, lambda n: (t.randn(2, n, 12),), {"x": {1: "length"}}),
    "both": (Attention, lambda n: (t.randn(n // 2 + 1, n, 12),), {"x": {0: "batch", 1: "length"}}),
}


#: The cases that have results for no elements.
EMPTY = {"images", "lstm", "tokens"}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_models_of_any_size_equal_tenon(name, tmp_path):
    t.manual_seed(0)
    make, example, dynamic = CASES[name]
    graph = captured(make(), example(4), dynamic, least=0 if name in EMPTY else 1)
    sizes = (*((0,) if name in EMPTY else ()), 3, 1, 2, MOST, 7)
    vectors = make_vectors(graph, [example(n) for n in sizes], 1e-5)

    CTarget().write(CTarget().lowered(graph), vectors, tmp_path)

    assert vectors.excess(Quick().run(tmp_path, [run.inputs for run in vectors.runs])) <= 1
    assert f"{len(sizes)} vectors, 0 failures" in sanitized(tmp_path)
