"""Recurrent layers over whole sequences: ``rnn_sequence``, ``lstm_sequence``, ``gru_sequence``.

One op is one layer in one direction, so that a backend can multiply the inputs of all steps at once and keep
weights packed from step to step. Sequences of different lengths are *packed*: ``x[N, I]`` holds, step after
step, the rows of the sequences that have not ended, ``sizes[t]`` of them at step ``t``, never more than at
the step before; nothing is computed for padding. For sequences of one length all sizes are equal.
``reverse`` runs each sequence from its own end.

All return ``out[N, H]`` in the order of ``x``, then the states ``[sizes[0], H]`` after each row's last step.
The residuals are the activated gates (and cells) of all steps. The gradients are ops too, in
``recurrent_grad.py``. 16-bit numbers are computed in float32 and rounded at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

from tenon.engine.aval import Aval
from tenon.engine.op import Composite, Kind
from tenon.engine.types import Operand, OpNamespace
from tenon.errors import DTypeError, ShapeError
from tenon.ops.dtype_queries import matching, title_of, widened

#: ``step(start, stop, states)``: the next states, for the rows ``start`` to ``stop``.
Step = Callable[[int, int, list[Operand]], list[Operand]]


def spans(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first row and the end of the rows of each step."""
    ends = list(accumulate(sizes))
    return list(zip([0, *ends], ends, strict=False))


def rows(f: OpNamespace, x: Operand, start: int, stop: int) -> Operand:
    """Return ``x[start:stop]``."""
    return x if stop - start == x.shape[0] else f.slice_axis(x, axis=0, start=start, stop=stop)


def scan(
    f: OpNamespace, step: Step, initial: Sequence[Operand], sizes: Sequence[int], reverse: bool
) -> list[Operand]:
    """Run ``step(start, stop, states)`` over all steps; return the states after the last step of each row.

    ``initial`` has ``sizes[0]`` rows. In reverse, rows join with their initial state at the step that is the
    last of their sequence.
    """
    running = sizes[-1] if reverse else sizes[0]
    states = [rows(f, s, 0, running) for s in initial]
    ended: list[list[Operand]] = [[] for _ in initial]
    steps = spans(sizes)
    for start, stop in reversed(steps) if reverse else steps:
        size = stop - start
        if size < running:
            for pieces, s in zip(ended, states, strict=True):
                pieces.append(rows(f, s, size, running))
            states = [rows(f, s, 0, size) for s in states]
        elif size > running:
            pairs = zip(states, initial, strict=True)
            states = [f.cat(s, rows(f, first, running, size), axis=0) for s, first in pairs]
        running = size
        states = step(start, stop, states)
    return [
        f.cat(s, *reversed(pieces), axis=0) if pieces else s for s, pieces in zip(states, ended, strict=True)
    ]


def concatenated(f: OpNamespace, pieces: list[Operand], reverse: bool) -> Operand:
    """Concatenate the results of the steps, in the order of the rows of ``x``."""
    return f.cat(*(reversed(pieces) if reverse else pieces), axis=0)


def split_gates(f: OpNamespace, x: Operand, count: int) -> Operand:
    """Split ``x`` into ``count`` equal pieces along its last axis."""
    return f.split(x, sizes=(x.shape[1] // count,) * count, axis=1)


def _summed(f: OpNamespace, one: Operand, other: Operand) -> Operand:
    """Return the sum of two biases; None if there are none."""
    return None if one is None else f.add(one, other)


def transposed(f: OpNamespace, weight: Operand) -> Operand:
    """Return the transpose of a matrix."""
    return f.transpose(weight, axis0=0, axis1=1)


def _check_dtypes(name: str, weight: Operand, *others: Operand) -> None:
    """Raise DTypeError unless all of ``others`` have the dtype of ``weight``."""
    for v in others:
        if v is not None and v.dtype != weight.dtype:
            raise DTypeError(
                f"mat1 and mat2 must have the same dtype, but got {title_of(v)} and {title_of(weight)}"
                f" ({name}: {list(v.shape)} with a weight {list(weight.shape)}). Convert one with"
                " .to(dtype)."
            )


def _check(
    name: str,
    gates: int,
    sizes: tuple[int, ...],
    x: Operand,
    hidden: Operand,
    w_ih: Operand,
    w_hh: Operand,
    *more: Operand,
) -> None:
    """Raise ShapeError or DTypeError unless the arguments fit each other."""
    _check_dtypes(name, w_ih, x, hidden, w_hh, *more)
    if not sizes or list(sizes) != sorted(sizes, reverse=True):
        raise ShapeError(f"{name}: sizes must not be empty and may not grow, got {tuple(sizes)}.")
    shapes = f"input {list(x.shape)}, weights {list(w_ih.shape)} and {list(w_hh.shape)}"
    if len(x.shape) != 2 or x.shape[0] != sum(sizes):
        raise ShapeError(
            f"{name}: {shapes}: expected an input of {sum(sizes)} rows for sizes {tuple(sizes)}."
        )
    if x.shape[1] != w_ih.shape[1] or w_ih.shape[0] != w_hh.shape[0] or w_ih.shape[0] % gates:
        raise ShapeError(f"{name}: {shapes} do not fit each other: rows are {gates} x hidden_size.")
    if tuple(hidden.shape) != (sizes[0], w_hh.shape[1]):
        raise ShapeError(
            f"Expected hidden size {[sizes[0], w_hh.shape[1]]}, got {list(hidden.shape)} ({name}: {shapes})"
        )


class RnnSequence(Composite):
    """``h = tanh(x @ w_ih.T + b_ih + h @ w_hh.T + b_hh)`` at each step; or ``relu`` in place of ``tanh``."""

    kind = Kind.CONTRACT
    inputs = ("x", "h0", "w_ih", "w_hh", "b_ih", "b_hh")
    saves = ("x", "h0", "w_ih", "w_hh", "out")
    outputs = 2
    grad_name = "RnnTanhBackward0"
    #: The number of gates in the rows of a weight, and the index of the candidate for the new state.
    gates, candidate = 1, 0

    def infer(self, x, h0, w_ih, w_hh, b_ih, b_hh, *, sizes, reverse=False, nonlinearity="tanh"):
        """The outputs of all steps, and the last states."""
        _check(self.name, self.gates, sizes, x, h0, w_ih, w_hh, b_ih, b_hh)
        return Aval((x.shape[0], w_hh.shape[0]), x.dtype), Aval(tuple(h0.shape), x.dtype)

    def decompose(self, f, x, h0, w_ih, w_hh, b_ih, b_hh, *, sizes, reverse=False, nonlinearity="tanh"):
        _check_dtypes(self.name, w_ih, x, h0, w_hh, b_ih, b_hh)
        original, outputs = x, []
        x, h0, w_ih, w_hh, b_ih, b_hh = widened(f, x, h0, w_ih, w_hh, b_ih, b_hh)
        inputs, recurrent = f.linear(x, w_ih, _summed(f, b_ih, b_hh)), transposed(f, w_hh)
        activate = f.relu if nonlinearity == "relu" else f.tanh

        def step(start: int, stop: int, states: list[Operand]) -> list[Operand]:
            h = activate(f.add(rows(f, inputs, start, stop), f.matmul(states[0], recurrent)))
            outputs.append(h)
            return [h]

        (last,) = scan(f, step, (h0,), sizes, reverse)
        return matching(f, concatenated(f, outputs, reverse), original), matching(f, last, original)

    def vjp_joint(self, f, g, out, x, h0, w_ih, w_hh, b_ih, b_hh, *, needs, **attrs):
        """Compute all gradients with one op."""
        result = f.rnn_sequence_grad(*g, out, x, h0, w_ih, w_hh, needs=needs, **attrs)
        return [m if n else None for m, n in zip((*result, result[-1]), needs, strict=True)]

    def cost(self, x, h0, w_ih, w_hh, b_ih, b_hh, **attrs):
        """The operations of both products."""
        return 2.0 * x.shape[0] * (w_ih.shape[0] * w_ih.shape[1] + w_hh.shape[0] * w_hh.shape[1])


class LstmSequence(Composite):
    """``c = f * c + i * tanh(g)``, ``h = o * tanh(c)``; ``w_hr``, which may be None, projects ``h``.

    ``i``, ``f``, ``g``, ``o`` are the quarters of ``x @ w_ih.T + b_ih + h @ w_hh.T + b_hh``; all but ``g``
    go through a sigmoid.
    """

    kind = Kind.CONTRACT
    inputs = ("x", "h0", "c0", "w_ih", "w_hh", "b_ih", "b_hh", "w_hr")
    saves = ("x", "h0", "c0", "w_ih", "w_hh", "b_ih", "b_hh", "w_hr", "out")
    outputs = 3
    residuals = 2
    grad_name = "LstmBackward0"
    gates, candidate = 4, 2

    def infer(self, x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr, *, sizes, reverse=False):
        """The outputs of all steps; the last hidden states and cells."""
        _check(self.name, self.gates, sizes, x, h0, w_ih, w_hh, c0, b_ih, b_hh, w_hr)
        width = w_hh.shape[0] // 4
        if tuple(c0.shape) != (sizes[0], width):
            raise ShapeError(
                f"Expected hidden[1] size {[sizes[0], width]}, got {list(c0.shape)} ({self.name})"
            )
        if (width if w_hr is None else w_hr.shape[0]) != w_hh.shape[1]:
            raise ShapeError(f"{self.name}: weight_hh {list(w_hh.shape)} does not fit its hidden state.")
        out = Aval((x.shape[0], w_hh.shape[1]), x.dtype)
        return out, Aval(tuple(h0.shape), x.dtype), Aval(tuple(c0.shape), x.dtype)

    def decompose(self, f, x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr, *, sizes, reverse=False):
        return self.raw_forward(f, x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr, sizes=sizes, reverse=reverse)[:3]

    def raw_forward(self, f, x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr, *, sizes, reverse=False):
        """Return also the activated gates ``[N, 4 H]`` and the cells ``[N, H]`` of all steps."""
        _check_dtypes(self.name, w_ih, x, h0, c0, w_hh, b_ih, b_hh, w_hr)
        original = x
        x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr = widened(f, x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr)
        inputs, recurrent = f.linear(x, w_ih, _summed(f, b_ih, b_hh)), transposed(f, w_hh)
        outputs: list[Operand] = []
        gates: list[Operand] = []
        cells: list[Operand] = []

        def step(start: int, stop: int, states: list[Operand]) -> list[Operand]:
            h, c = states
            pre = f.add(rows(f, inputs, start, stop), f.matmul(h, recurrent))
            i, forget, g, o = split_gates(f, pre, 4)
            i, forget, g, o = f.sigmoid(i), f.sigmoid(forget), f.tanh(g), f.sigmoid(o)
            c = f.add(f.mul(forget, c), f.mul(i, g))
            h = f.mul(o, f.tanh(c))
            h = h if w_hr is None else f.matmul(h, transposed(f, w_hr))
            outputs.append(h)
            gates.append(f.cat(i, forget, g, o, axis=1))
            cells.append(c)
            return [h, c]

        last = scan(f, step, (h0, c0), sizes, reverse)
        results = (
            concatenated(f, outputs, reverse),
            *last,
            *(concatenated(f, p, reverse) for p in (gates, cells)),
        )
        return tuple(matching(f, m, original) for m in results)

    def vjp_joint(self, f, g, out, x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr, *, needs, residuals, **attrs):
        """Compute all gradients with one op."""
        result = f.lstm_sequence_grad(*g, out, x, h0, c0, w_ih, w_hh, w_hr, *residuals, needs=needs, **attrs)
        result = (*result[:6], result[5], result[6])
        return [m if n else None for m, n in zip(result, needs, strict=True)]

    def cost(self, x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr, **attrs):
        """The operations of all products."""
        weights = sum(w.shape[0] * w.shape[1] for w in (w_ih, w_hh, w_hr) if w is not None)
        return 2.0 * x.shape[0] * weights


class GruSequence(Composite):
    """``h = (1 - z) * n + z * h`` with ``n = tanh(x_n + r * h_n)``.

    ``r`` and ``z`` are sigmoids of the first two thirds of ``x @ w_ih.T + b_ih + h @ w_hh.T + b_hh``;
    ``x_n`` and ``h_n`` the last thirds of its two parts.
    """

    kind = Kind.CONTRACT
    inputs = ("x", "h0", "w_ih", "w_hh", "b_ih", "b_hh")
    saves = ("x", "h0", "w_ih", "w_hh", "b_ih", "b_hh", "out")
    outputs = 2
    residuals = 2
    grad_name = "GruBackward0"
    gates, candidate = 3, 2

    def infer(self, x, h0, w_ih, w_hh, b_ih, b_hh, *, sizes, reverse=False):
        """The outputs of all steps, and the last states."""
        _check(self.name, self.gates, sizes, x, h0, w_ih, w_hh, b_ih, b_hh)
        return Aval((x.shape[0], w_hh.shape[1]), x.dtype), Aval(tuple(h0.shape), x.dtype)

    def decompose(self, f, x, h0, w_ih, w_hh, b_ih, b_hh, *, sizes, reverse=False):
        return self.raw_forward(f, x, h0, w_ih, w_hh, b_ih, b_hh, sizes=sizes, reverse=reverse)[:2]

    def raw_forward(self, f, x, h0, w_ih, w_hh, b_ih, b_hh, *, sizes, reverse=False):
        """Return also the activated gates ``[N, 3 H]`` and ``h_n[N, H]`` of all steps."""
        _check_dtypes(self.name, w_ih, x, h0, w_hh, b_ih, b_hh)
        original = x
        x, h0, w_ih, w_hh, b_ih, b_hh = widened(f, x, h0, w_ih, w_hh, b_ih, b_hh)
        inputs = f.linear(x, w_ih, b_ih)
        outputs: list[Operand] = []
        gates: list[Operand] = []
        hidden: list[Operand] = []

        def step(start: int, stop: int, states: list[Operand]) -> list[Operand]:
            (h,) = states
            own = f.linear(h, w_hh, b_hh)
            xr, xz, xn = split_gates(f, rows(f, inputs, start, stop), 3)
            hr, hz, hn = split_gates(f, own, 3)
            r, z = f.sigmoid(f.add(xr, hr)), f.sigmoid(f.add(xz, hz))
            n = f.tanh(f.add(xn, f.mul(r, hn)))
            h = f.add(n, f.mul(z, f.sub(h, n)))
            outputs.append(h)
            gates.append(f.cat(r, z, n, axis=1))
            hidden.append(hn)
            return [h]

        last = scan(f, step, (h0,), sizes, reverse)
        results = (
            concatenated(f, outputs, reverse),
            *last,
            *(concatenated(f, p, reverse) for p in (gates, hidden)),
        )
        return tuple(matching(f, m, original) for m in results)

    def vjp_joint(self, f, g, out, x, h0, w_ih, w_hh, b_ih, b_hh, *, needs, residuals, **attrs):
        """Compute all gradients with one op."""
        result = f.gru_sequence_grad(*g, out, x, h0, w_ih, w_hh, *residuals, needs=needs, **attrs)
        return [m if n else None for m, n in zip(result, needs, strict=True)]

    def cost(self, x, h0, w_ih, w_hh, b_ih, b_hh, **attrs):
        """The operations of both products."""
        return 2.0 * x.shape[0] * (w_ih.shape[0] * w_ih.shape[1] + w_hh.shape[0] * w_hh.shape[1])


rnn_sequence, lstm_sequence, gru_sequence = RnnSequence(), LstmSequence(), GruSequence()
