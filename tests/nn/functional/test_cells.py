"""``lstm_cell``, ``lstm`` and the like: the modules' computation, from weights."""

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


def _inputs(module, batch_first=False):
    x = tenon.randn(3, 4, 2) if batch_first else tenon.randn(4, 3, 2)
    directions = 2 if module.bidirectional else 1
    shape = (module.num_layers * directions, 3)
    h = tenon.randn(*shape, module.proj_size or module.hidden_size)
    return x, (h, tenon.randn(*shape, module.hidden_size)) if module.mode == "LSTM" else h


def _flat(made):
    return [t for m in made for t in (m if isinstance(m, tuple) else (m,))]


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn_tanh", "rnn_relu"])
@pytest.mark.parametrize("bias", [True, False])
def test_layers_of_weights_are_the_module_that_has_them(name, bias):
    kind = {"lstm": nn.LSTM, "gru": nn.GRU}.get(name, nn.RNN)
    options = (
        {"nonlinearity": name[4:]} if name.startswith("rnn") else {"proj_size": 3} if name == "lstm" else {}
    )
    module = kind(2, 5, 2, bias=bias, batch_first=True, bidirectional=True, **options)
    x, hx = _inputs(module, batch_first=True)
    settings = (list(module.parameters()), bias, 2, 0.0, True, True)

    padded = getattr(tenon, name)(x, hx, *settings, True)
    packed = nn.utils.rnn.pack_padded_sequence(x, [4, 2, 1], batch_first=True)
    rows = getattr(tenon, name)(packed.data, packed.batch_sizes, hx, *settings)

    for mine, wanted in zip(padded, _flat(module(x, hx)), strict=True):
        assert tenon.equal(mine, wanted)
    out, states = module(packed, hx)
    for mine, wanted in zip(rows, _flat((out.data, states)), strict=True):
        assert tenon.equal(mine, wanted)


def test_layers_of_weights_refuse_what_does_not_divide_and_drop_only_in_training():
    module = nn.GRU(2, 5, 2)
    x, hx = _inputs(module)
    weights = list(module.parameters())

    with pytest.raises(RuntimeError, match="7 weights cannot be those of 2 layers"):
        tenon.gru(x, hx, weights[1:], True, 2, 0.0, True, False, False)
    with pytest.raises(RuntimeError, match="sequence length to be larger than 0"):
        tenon.gru(x[:0], hx, weights, True, 2, 0.0, True, False, False)
    with pytest.raises(TypeError, match="takes 9 arguments"):
        tenon.gru(x, hx, weights)
    assert tenon.equal(tenon.gru(x, hx, weights, True, 2, 0.9, False, False, False)[0], module(x, hx)[0])
    assert not tenon.equal(tenon.gru(x, hx, weights, True, 2, 0.9, True, False, False)[0], module(x, hx)[0])


def test_layers_copied_from_torch_find_their_functions():
    from tenon import _VF

    module = nn.LSTM(2, 5)
    x, hx = _inputs(module)
    made = _VF.lstm(x, hx, module._flat_weights, True, 1, 0.0, False, False, False)

    assert tenon.equal(made[0], module(x, hx)[0])
    assert tenon._VF._add_relu(tenon.tensor([1.0, -3.0]), 1, alpha=2).tolist() == [3.0, 0.0]
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = _VF.nothing
