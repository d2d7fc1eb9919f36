"""One step of a recurrent network, from its weights: ``lstm_cell``, ``gru_cell`` and the two of an RNN.

A cell is the op of its layer on a sequence of one step. The modules of ``layers/recurrent_cells.py`` check
their input by the same function and run the same step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import tenon.ops  # noqa: F401 - fills the op table
from tenon.compat.rerouting import register
from tenon.engine.op import table
from tenon.errors import ShapeError
from tenon.tensors.precision import runs_in

if TYPE_CHECKING:
    from tenon.engine.op import Op
    from tenon.tensors.tensor import Tensor

__all__ = ["gru_cell", "lstm_cell", "rnn_relu_cell", "rnn_tanh_cell"]


def check_sizes(input: Tensor, states: tuple[Tensor, ...], input_size: int, hidden_size: int) -> None:
    """Raise ShapeError unless ``input[N, I]`` and every one of ``states[N, H]`` have these sizes."""
    if input.shape[1] != input_size:
        raise ShapeError(f"input has inconsistent input_size: got {input.shape[1]} expected {input_size}")
    for position, h in enumerate(states):
        if h.shape[0] != input.shape[0]:
            raise ShapeError(
                f"Input batch size {input.shape[0]} doesn't match hidden{position} batch size {h.shape[0]}"
            )
        if h.shape[1] != hidden_size:
            raise ShapeError(
                f"hidden{position} has inconsistent hidden_size: got {h.shape[1]}, expected {hidden_size}"
            )


@runs_in("widest", cuda="lower")
def step(op: Op, input: Tensor, *rest: Tensor | None, **attrs: str) -> tuple[Tensor, ...]:
    """Return the states after one step of ``op``.

    As in PyTorch's cells, autocast computes in the widest dtype of the arguments, on GPUs in its own.
    """
    return op(input, *rest, sizes=(input.shape[0],), **attrs)[1:]


def _check(input: Tensor, states: tuple[Tensor, ...], w_ih: Tensor, w_hh: Tensor, gates: int) -> None:
    """Raise ShapeError unless the weights, of ``gates`` rows per hidden unit, fit ``input`` and
    ``states``."""
    check_sizes(input, states, w_ih.shape[1], w_hh.shape[1])
    rows = gates * w_hh.shape[1]
    for name, weight in (("weight_ih", w_ih), ("weight_hh", w_hh)):
        if weight.shape[0] != rows:
            raise ShapeError(
                f"{name} first dim must be {gates} * hidden_size = {rows}, but got {weight.shape[0]}"
            )


def lstm_cell(
    input: Tensor, hx: Sequence[Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The next ``(h, c)`` for ``input[N, I]`` and ``hx``, the last ``(h, c)``; weights are ``[4 H, I]`` and
    ``[4 H, H]``."""
    if len(hx) != 2:
        raise ShapeError(f"lstm_cell expects two hidden states, got {len(hx)}")
    _check(input, tuple(hx), w_ih, w_hh, 4)
    return step(table.lstm_sequence, input, *hx, w_ih, w_hh, b_ih, b_hh, None)


def gru_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The next state for ``input[N, I]`` and the last one, ``hx[N, H]``; weights are ``[3 H, I]`` and ``[3
    H, H]``."""
    _check(input, (hx,), w_ih, w_hh, 3)
    return step(table.gru_sequence, input, hx, w_ih, w_hh, b_ih, b_hh)[0]


def rnn_tanh_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """``tanh(w_ih input + b_ih + w_hh hx + b_hh)``, row by row."""
    _check(input, (hx,), w_ih, w_hh, 1)
    return step(table.rnn_sequence, input, hx, w_ih, w_hh, b_ih, b_hh, nonlinearity="tanh")[0]


def rnn_relu_cell(
    input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """``relu(w_ih input + b_ih + w_hh hx + b_hh)``, row by row."""
    _check(input, (hx,), w_ih, w_hh, 1)
    return step(table.rnn_sequence, input, hx, w_ih, w_hh, b_ih, b_hh, nonlinearity="relu")[0]


register("torch", {name: globals()[name] for name in __all__})
