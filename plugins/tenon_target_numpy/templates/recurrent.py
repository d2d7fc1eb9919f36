"""Recurrent layers over packed sequences: ``x[N, I]`` has, step after step, the rows that have not ended.

``sizes[t]`` rows run in step t, never more than in the step before; ``reverse`` runs each sequence from its
own end. ``_saved`` returns the activated gates of all steps too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np

from tenon_target_numpy.templates.mathematics import sigmoid


def step_spans(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first row and the end of the rows of each step."""
    ends = list(accumulate(sizes))
    return list(zip([0, *ends], ends, strict=False))


def scan(
    step: Callable[[int, int, list[np.ndarray]], list[np.ndarray]],
    initial: Sequence[np.ndarray],
    sizes: Sequence[int],
    reverse: bool,
) -> list[np.ndarray]:
    """Run ``step(start, stop, states)`` over all steps; return the states after each row's last step."""
    running = sizes[-1] if reverse else sizes[0]
    states = [s[:running] for s in initial]
    ended: list[list[np.ndarray]] = [[] for _ in initial]
    spans = step_spans(sizes)
    for start, stop in reversed(spans) if reverse else spans:
        size = stop - start
        if size < running:
            for pieces, s in zip(ended, states, strict=True):
                pieces.append(s[size:running])
            states = [s[:size] for s in states]
        elif size > running:
            states = [np.concatenate([s, i[running:size]]) for s, i in zip(states, initial, strict=True)]
        running = size
        states = step(start, stop, states)
    return [np.concatenate([s, *reversed(p)]) for s, p in zip(states, ended, strict=True)]


def joined_steps(pieces: list[np.ndarray], reverse: bool) -> np.ndarray:
    """Concatenate the results of the steps, in the order of the rows."""
    return np.concatenate(pieces[::-1] if reverse else pieces)


def summed_biases(one: np.ndarray | None, other: np.ndarray | None) -> np.ndarray | float:
    """Return the sum of two biases, or 0 if there are none."""
    return 0.0 if one is None or other is None else one + other


def rnn_sequence(
    x: np.ndarray,
    h0: np.ndarray,
    w_ih: np.ndarray,
    w_hh: np.ndarray,
    b_ih: np.ndarray | None,
    b_hh: np.ndarray | None,
    sizes: Sequence[int],
    reverse: bool = False,
    nonlinearity: str = "tanh",
) -> tuple[np.ndarray, np.ndarray]:
    """Return the states of all steps and the last ones of ``h = tanh(x w_ih + b_ih + h w_hh + b_hh)``."""
    inputs, outputs = x @ w_ih.T + summed_biases(b_ih, b_hh), []

    def step(start: int, stop: int, states: list[np.ndarray]) -> list[np.ndarray]:
        h = inputs[start:stop] + states[0] @ w_hh.T
        outputs.append(np.maximum(h, 0) if nonlinearity == "relu" else np.tanh(h))
        return [outputs[-1]]

    (last,) = scan(step, [h0], sizes, reverse)
    return joined_steps(outputs, reverse), last


def lstm_sequence_saved(
    x: np.ndarray,
    h0: np.ndarray,
    c0: np.ndarray,
    w_ih: np.ndarray,
    w_hh: np.ndarray,
    b_ih: np.ndarray | None,
    b_hh: np.ndarray | None,
    w_hr: np.ndarray | None,
    sizes: Sequence[int],
    reverse: bool = False,
) -> tuple[np.ndarray, ...]:
    """Return the outputs of all steps, the last states and cells; then gates and cells of all steps."""
    inputs = x @ w_ih.T + summed_biases(b_ih, b_hh)
    outputs: list[np.ndarray] = []
    gates: list[np.ndarray] = []
    cells: list[np.ndarray] = []

    def step(start: int, stop: int, states: list[np.ndarray]) -> list[np.ndarray]:
        h, c = states
        i, forget, g, o = np.split(inputs[start:stop] + h @ w_hh.T, 4, axis=1)
        i, forget, g, o = sigmoid(i), sigmoid(forget), np.tanh(g), sigmoid(o)
        c = forget * c + i * g
        h = o * np.tanh(c)
        h = h if w_hr is None else h @ w_hr.T
        outputs.append(h)
        gates.append(np.concatenate([i, forget, g, o], axis=1))
        cells.append(c)
        return [h, c]

    last = scan(step, [h0, c0], sizes, reverse)
    return (
        joined_steps(outputs, reverse), *last, joined_steps(gates, reverse), joined_steps(cells, reverse)
    )  # fmt: skip


def lstm_sequence(
    x: np.ndarray,
    h0: np.ndarray,
    c0: np.ndarray,
    w_ih: np.ndarray,
    w_hh: np.ndarray,
    b_ih: np.ndarray | None,
    b_hh: np.ndarray | None,
    w_hr: np.ndarray | None,
    sizes: Sequence[int],
    reverse: bool = False,
) -> tuple[np.ndarray, ...]:
    """Return the outputs of all steps, the last states and cells of an LSTM."""
    return lstm_sequence_saved(x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr, sizes, reverse)[:3]


def gru_sequence_saved(
    x: np.ndarray,
    h0: np.ndarray,
    w_ih: np.ndarray,
    w_hh: np.ndarray,
    b_ih: np.ndarray | None,
    b_hh: np.ndarray | None,
    sizes: Sequence[int],
    reverse: bool = False,
) -> tuple[np.ndarray, ...]:
    """Return the outputs of all steps and the last states; then gates and ``h_n`` of all steps."""
    inputs = x @ w_ih.T + (0.0 if b_ih is None else b_ih)
    outputs: list[np.ndarray] = []
    gates: list[np.ndarray] = []
    hidden: list[np.ndarray] = []

    def step(start: int, stop: int, states: list[np.ndarray]) -> list[np.ndarray]:
        (h,) = states
        xr, xz, xn = np.split(inputs[start:stop], 3, axis=1)
        hr, hz, hn = np.split(h @ w_hh.T + (0.0 if b_hh is None else b_hh), 3, axis=1)
        r, z = sigmoid(xr + hr), sigmoid(xz + hz)
        n = np.tanh(xn + r * hn)
        h = n + z * (h - n)
        outputs.append(h)
        gates.append(np.concatenate([r, z, n], axis=1))
        hidden.append(hn)
        return [h]

    last = scan(step, [h0], sizes, reverse)
    return (
        joined_steps(outputs, reverse), *last, joined_steps(gates, reverse), joined_steps(hidden, reverse)
    )  # fmt: skip


def gru_sequence(
    x: np.ndarray,
    h0: np.ndarray,
    w_ih: np.ndarray,
    w_hh: np.ndarray,
    b_ih: np.ndarray | None,
    b_hh: np.ndarray | None,
    sizes: Sequence[int],
    reverse: bool = False,
) -> tuple[np.ndarray, ...]:
    """Return the outputs of all steps and the last states of a GRU."""
    return gru_sequence_saved(x, h0, w_ih, w_hh, b_ih, b_hh, sizes, reverse)[:2]
