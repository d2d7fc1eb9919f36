"""Gradients of the recurrent layers: backpropagation through time, from the last step to the first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tenon_target_numpy.templates.recurrent import joined_steps, scan, step_spans


def states_before(states: np.ndarray, initial: np.ndarray, sizes: Sequence[int], reverse: bool) -> np.ndarray:
    """Return the state from which each row was computed: that of the step before, or the initial one."""
    places, pieces = step_spans(sizes), []
    for t, size in enumerate(sizes):
        if not reverse:
            pieces.append(states[places[t - 1][0] : places[t - 1][0] + size] if t else initial)
            continue
        later = sizes[t + 1] if t + 1 < len(sizes) else 0
        if later:
            pieces.append(states[slice(*places[t + 1])])
        if size > later or not size:
            pieces.append(initial[later:size])
    return np.concatenate(pieces)


def weight_gradients(
    x: np.ndarray, w_ih: np.ndarray, previous: np.ndarray, inputs: np.ndarray, hidden: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Return the gradients of the input, both weights and both biases."""
    return inputs @ w_ih, inputs.T @ x, hidden.T @ previous, inputs.sum(0), hidden.sum(0)


def rnn_sequence_grad(
    g: np.ndarray,
    g_last: np.ndarray,
    out: np.ndarray,
    x: np.ndarray,
    h0: np.ndarray,
    w_ih: np.ndarray,
    w_hh: np.ndarray,
    sizes: Sequence[int],
    needs: tuple[bool, ...],
    reverse: bool = False,
    nonlinearity: str = "tanh",
) -> tuple[np.ndarray, ...]:
    """Return the gradients of ``rnn_sequence`` by input, state, both weights, and either bias."""
    pieces: list[np.ndarray] = []

    def step(start: int, stop: int, states: list[np.ndarray]) -> list[np.ndarray]:
        dh, h = states[0] + g[start:stop], out[start:stop]
        slope = h > 0 if nonlinearity == "relu" else 1.0 - h * h
        pieces.append(dh * slope)
        return [pieces[-1] @ w_hh]

    (dh0,) = scan(step, [g_last], sizes, not reverse)
    d = joined_steps(pieces, not reverse)
    dx, dw_ih, dw_hh, db, _ = weight_gradients(x, w_ih, states_before(out, h0, sizes, reverse), d, d)
    return dx, dh0, dw_ih, dw_hh, db


def lstm_sequence_grad(
    g: np.ndarray,
    g_last: np.ndarray,
    g_cell: np.ndarray,
    out: np.ndarray,
    x: np.ndarray,
    h0: np.ndarray,
    c0: np.ndarray,
    w_ih: np.ndarray,
    w_hh: np.ndarray,
    w_hr: np.ndarray | None,
    gates: np.ndarray,
    cells: np.ndarray,
    sizes: Sequence[int],
    needs: tuple[bool, ...],
    reverse: bool = False,
) -> tuple[np.ndarray, ...]:
    """Return the gradients of ``lstm_sequence`` by input, states, weights, either bias, and projection."""
    i, forget, a, o = np.split(gates, 4, axis=1)
    old, tanh = states_before(cells, c0, sizes, reverse), np.tanh(cells)
    through = o * (1.0 - tanh * tanh)
    slopes = np.concatenate([a * i * (1.0 - i), old * forget * (1.0 - forget), i * (1.0 - a * a)], axis=1)
    out_slope = tanh * o * (1.0 - o)
    pieces: list[np.ndarray] = []
    projected: list[np.ndarray] = []

    def step(start: int, stop: int, states: list[np.ndarray]) -> list[np.ndarray]:
        dh = states[0] + g[start:stop]
        projected.append(dh)
        dh = dh if w_hr is None else dh @ w_hr
        dc = states[1] + dh * through[start:stop]
        d = np.concatenate([dc, dc, dc], axis=1) * slopes[start:stop]
        pieces.append(np.concatenate([d, dh * out_slope[start:stop]], axis=1))
        return [pieces[-1] @ w_hh, dc * forget[start:stop]]

    dh0, dc0 = scan(step, [g_last, g_cell], sizes, not reverse)
    d = joined_steps(pieces, not reverse)
    dx, dw_ih, dw_hh, db, _ = weight_gradients(x, w_ih, states_before(out, h0, sizes, reverse), d, d)
    dw_hr = np.zeros(0, x.dtype) if w_hr is None else joined_steps(projected, not reverse).T @ (o * tanh)
    return dx, dh0, dc0, dw_ih, dw_hh, db, dw_hr


def gru_sequence_grad(
    g: np.ndarray,
    g_last: np.ndarray,
    out: np.ndarray,
    x: np.ndarray,
    h0: np.ndarray,
    w_ih: np.ndarray,
    w_hh: np.ndarray,
    gates: np.ndarray,
    hidden: np.ndarray,
    sizes: Sequence[int],
    needs: tuple[bool, ...],
    reverse: bool = False,
) -> tuple[np.ndarray, ...]:
    """Return the gradients of ``gru_sequence`` by input, state, both weights and both biases."""
    r, z, n = np.split(gates, 3, axis=1)
    old = states_before(out, h0, sizes, reverse)
    candidate = (1.0 - z) * (1.0 - n * n)
    reset = candidate * hidden * r * (1.0 - r)
    update = (old - n) * z * (1.0 - z)
    slopes = np.concatenate([reset, update, candidate], axis=1)
    own = np.concatenate([reset, update, candidate * r], axis=1)
    pieces: list[np.ndarray] = []
    owns: list[np.ndarray] = []

    def step(start: int, stop: int, states: list[np.ndarray]) -> list[np.ndarray]:
        dh = states[0] + g[start:stop]
        three = np.concatenate([dh, dh, dh], axis=1)
        pieces.append(three * slopes[start:stop])
        owns.append(three * own[start:stop])
        return [dh * z[start:stop] + owns[-1] @ w_hh]

    (dh0,) = scan(step, [g_last], sizes, not reverse)
    inputs, hiddens = joined_steps(pieces, not reverse), joined_steps(owns, not reverse)
    dx, dw_ih, dw_hh, db_ih, db_hh = weight_gradients(x, w_ih, old, inputs, hiddens)
    return dx, dh0, dw_ih, dw_hh, db_ih, db_hh
