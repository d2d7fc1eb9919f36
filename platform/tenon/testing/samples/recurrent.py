"""Samples of the recurrent layers' ops: references step by step, sequences of different lengths."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tenon.testing.samples.draw import normal, uniform
from tenon.testing.samples.table import add


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


#: Computes the states after a step from the row of inputs and the previous states.
Cell = Callable[[np.ndarray, list[np.ndarray]], list[np.ndarray]]


def _run_steps(
    cell: Cell, x: np.ndarray, states: list[np.ndarray], sizes: tuple[int, ...], reverse: bool
) -> tuple[np.ndarray, ...]:
    """Apply ``cell(row, states)`` to each sequence separately; return outputs and last states."""
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    ends = [s.copy() for s in states]
    out = np.zeros((x.shape[0], states[0].shape[1]), x.dtype)
    for sequence in range(sizes[0]):
        own = [s[sequence] for s in states]
        steps = [int(offsets[t]) + sequence for t in range(len(sizes)) if sizes[t] > sequence]
        for row in reversed(steps) if reverse else steps:
            own = cell(x[row], own)
            out[row] = own[0]
        for end, s in zip(ends, own, strict=True):
            end[sequence] = s
    return (out, *ends)


def _product(row: np.ndarray, weight: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    return weight @ row + (0 if bias is None else bias)


def _rnn(
    x: np.ndarray, h0: np.ndarray, w_ih: np.ndarray, w_hh: np.ndarray, b_ih: np.ndarray | None,
    b_hh: np.ndarray | None, sizes: tuple[int, ...], reverse: bool = False, nonlinearity: str = "tanh",
) -> tuple[np.ndarray, ...]:  # fmt: skip

    def cell(row: np.ndarray, states: list[np.ndarray]) -> list[np.ndarray]:
        pre = _product(row, w_ih, b_ih) + _product(states[0], w_hh, b_hh)
        return [np.maximum(pre, 0) if nonlinearity == "relu" else np.tanh(pre)]

    return _run_steps(cell, x, [h0], sizes, reverse)


def _lstm(
    x: np.ndarray, h0: np.ndarray, c0: np.ndarray, w_ih: np.ndarray, w_hh: np.ndarray,
    b_ih: np.ndarray | None, b_hh: np.ndarray | None, w_hr: np.ndarray | None, sizes: tuple[int, ...],
    reverse: bool = False,
) -> tuple[np.ndarray, ...]:  # fmt: skip

    def cell(row: np.ndarray, states: list[np.ndarray]) -> list[np.ndarray]:
        pre = _product(row, w_ih, b_ih) + _product(states[0], w_hh, b_hh)
        i, f, g, o = np.split(pre, 4)
        c = _sigmoid(f) * states[1] + _sigmoid(i) * np.tanh(g)
        h = _sigmoid(o) * np.tanh(c)
        return [h if w_hr is None else w_hr @ h, c]

    return _run_steps(cell, x, [h0, c0], sizes, reverse)


def _gru(
    x: np.ndarray, h0: np.ndarray, w_ih: np.ndarray, w_hh: np.ndarray, b_ih: np.ndarray | None,
    b_hh: np.ndarray | None, sizes: tuple[int, ...], reverse: bool = False,
) -> tuple[np.ndarray, ...]:  # fmt: skip
    def cell(row: np.ndarray, states: list[np.ndarray]) -> list[np.ndarray]:
        (h,) = states
        xr, xz, xn = np.split(_product(row, w_ih, b_ih), 3)
        hr, hz, hn = np.split(_product(h, w_hh, b_hh), 3)
        z = _sigmoid(xz + hz)
        return [(1 - z) * np.tanh(xn + _sigmoid(xr + hr) * hn) + z * h]

    return _run_steps(cell, x, [h0], sizes, reverse)


_EQUAL, _SHORTER = (2, 2, 2), (3, 2, 2, 1)
for _name, _sizes, _more in (
    ("equal", _EQUAL, {}),
    ("packed", _SHORTER, {}),
    ("packed_reverse", _SHORTER, {"reverse": True}),
):
    _n, _b = sum(_sizes), _sizes[0]
    _attrs = {"sizes": _sizes, **_more}
    _weights = {g: (normal(g * 3, 4), normal(g * 3, 3), normal(g * 3), normal(g * 3)) for g in (1, 3, 4)}
    _shared: dict[str, object] = {"attrs": _attrs, "loose": 20.0, "narrow": False}
    add("rnn_sequence", _name, normal(_n, 4), normal(_b, 3), *_weights[1], reference=_rnn, **_shared)
    add("gru_sequence", _name, normal(_n, 4), normal(_b, 3), *_weights[3], reference=_gru, **_shared)
    add("lstm_sequence", _name, normal(_n, 4), normal(_b, 3), normal(_b, 3), *_weights[4], None,
        reference=_lstm, **_shared)  # fmt: skip
    _without = (*_weights[4][:2], None, None)
    add("lstm_sequence", f"{_name}_without_bias", normal(_n, 4), normal(_b, 3), normal(_b, 3), *_without, None,
        reference=_lstm, **_shared)  # fmt: skip
    add("lstm_sequence", f"{_name}_projected", normal(_n, 4), normal(_b, 2), normal(_b, 3), normal(12, 4),
        normal(12, 2), normal(12), normal(12), normal(2, 3), reference=_lstm, **_shared)  # fmt: skip
add(
    "rnn_sequence", "relu", normal(6, 4), normal(2, 3), normal(3, 4), normal(3, 3), normal(3), normal(3),
    reference=_rnn, attrs={"sizes": _EQUAL, "nonlinearity": "relu"}, loose=20.0, narrow=False,
)  # fmt: skip
_ALL = (True,) * 8
_ATTRS = {"sizes": _SHORTER, "reverse": True}
add(
    "rnn_sequence_grad", "packed", normal(8, 3), normal(3, 3), uniform(-0.9, 0.9, 8, 3), normal(8, 4), normal(3, 3),
    normal(3, 4), normal(3, 3), attrs={**_ATTRS, "needs": _ALL[:6]}, order=0,
)  # fmt: skip
add(
    "lstm_sequence_grad", "packed", normal(8, 3), normal(3, 3), normal(3, 3), uniform(-0.9, 0.9, 8, 3), normal(8, 4),
    normal(3, 3), normal(3, 3), normal(12, 4), normal(12, 3), None, uniform(0, 1, 8, 12), normal(8, 3),
    attrs={**_ATTRS, "needs": (*_ALL[:7], False)}, order=0,
)  # fmt: skip
add(
    "gru_sequence_grad", "packed", normal(8, 3), normal(3, 3), uniform(-0.9, 0.9, 8, 3), normal(8, 4), normal(3, 3),
    normal(9, 4), normal(9, 3), uniform(0, 1, 8, 9), normal(8, 3), attrs={**_ATTRS, "needs": _ALL[:6]}, order=0,
)  # fmt: skip
