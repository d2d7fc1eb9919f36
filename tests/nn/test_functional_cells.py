"""``lstm_cell``, ``gru_cell`` and the two of an RNN: the modules' step, from weights."""

from __future__ import annotations

import pytest

import tenon
from tenon import nn

CELLS = {
    "lstm_cell": (4, lambda: nn.LSTMCell(3, 5)),
    "gru_cell": (3, lambda: nn.GRUCell(3, 5)),
    "rnn_tanh_cell": (1, lambda: nn.RNNCell(3, 5)),
    "rnn_relu_cell": (1, lambda: nn.RNNCell(3, 5, nonlinearity="relu")),
}


def _states(name, width=5):
    h = tenon.randn(2, width)
    return (h, tenon.randn(2, width)) if name == "lstm_cell" else h


@pytest.mark.parametrize("name", CELLS)
def test_a_cell_of_weights_is_the_module_that_has_them(name):
    cell, x, hx = CELLS[name][1](), tenon.randn(2, 3), _states(name)

    made, wanted = getattr(tenon, name)(x, hx, *cell.parameters()), cell(x, hx)

    for m, w in zip(made, wanted, strict=True):
        assert tenon.equal(m, w)
    assert made[0].requires_grad


@pytest.mark.parametrize("name", CELLS)
def test_weights_and_states_of_other_sizes_are_refused(name):
    gates, cell = CELLS[name][0], getattr(tenon, name)
    rows = 5 * gates
    x, hx, w_ih, w_hh = tenon.ones(2, 3), _states(name), tenon.ones(rows, 3), tenon.ones(rows, 5)

    with pytest.raises(
        RuntimeError, match=f"weight_ih first dim must be {gates} .* = {rows}, but got {rows + 1}"
    ):
        cell(x, hx, tenon.ones(rows + 1, 3), w_hh)
    with pytest.raises(RuntimeError, match="weight_hh first dim"):
        cell(x, hx, w_ih, tenon.ones(rows - 1, 5))
    with pytest.raises(RuntimeError, match="inconsistent hidden_size: got 4, expected 5"):
        cell(x, _states(name, 4), w_ih, w_hh)
    with pytest.raises(RuntimeError, match="inconsistent input_size: got 4 expected 3"):
        cell(tenon.ones(2, 4), hx, w_ih, w_hh)
