"""Connectionist temporal classification: the probability of a label sequence, over all its alignments.

An alignment is a path over ``2 S + 1`` states, S labels with blanks around them, that advances by 0, 1 or 2
states a step (2: past a blank between different labels). ``before[t, n, s]`` is the log-probability of all
paths that are in state s after step t, ``after`` that of all paths from there to the end; both include step
t. Sums are computed in logarithms, for all sequences of a batch at once.
"""

from __future__ import annotations

from typing import NamedTuple

from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Primitive
from tenon.engine.types import Array, ArrayNamespace, Operand
from tenon.errors import DTypeError, IndexRangeError, ShapeError, UnsupportedError
from tenon.ops.dtype_queries import dtype_of, title_of


def _check(log_probs: Operand, targets: Operand, blank: int) -> None:
    if len(log_probs.shape) != 3 or not all(log_probs.shape):
        raise ShapeError(f"log_probs tensor must not be empty: [T, N, C], got {list(log_probs.shape)}")
    if dtype_of(log_probs).name not in ("float32", "float64"):
        raise DTypeError(
            f'"ctc_loss" not implemented for {title_of(log_probs)!r}: log_probs must be float32 or float64.'
        )
    if len(targets.shape) not in (1, 2) or (
        len(targets.shape) == 2 and targets.shape[0] != log_probs.shape[1]
    ):
        raise ShapeError(
            f"Expected tensor to have size {log_probs.shape[1]} at dimension 0, but got size"
            f" {targets.shape[0] if targets.shape else 0} for argument #2 'targets': [N, S], or all labels in"
            f" a row (ctc_loss; targets {list(targets.shape)}, log_probs {list(log_probs.shape)})"
        )
    if dtype_of(targets).kind not in "iu":
        raise DTypeError(
            f"ctc_loss: targets must be integers, got {dtype_of(targets)}. Convert with .long()."
        )
    if not 0 <= blank < log_probs.shape[2]:
        raise IndexRangeError(f"blank must be in label range: {blank} of {log_probs.shape[2]} classes")


class _Paths(NamedTuple):
    """The states of every sequence ``[N, L]``, and which transitions its paths may take."""

    states: Array
    skips: Array
    """Whether a path may enter the state from two states before."""
    counts: Array
    """The number of states of each sequence."""


def _check_lengths(name: str, lengths: Operand, count: int, most: int) -> None:
    """Raise unless ``lengths`` are ``count`` integers from 0 to ``most``."""
    if lengths.dtype.kind not in "iu":
        raise DTypeError(f"{name} must be integral, got {lengths.dtype}")
    if lengths.shape != (count,):
        raise ShapeError(f"{name} must be of size batch_size: {count}, got {list(lengths.shape)}")
    low, high = int(lengths.min()), int(lengths.max())
    if low < 0:
        raise ShapeError(f"Expected {name} to have value at least 0, but got value {low} (ctc_loss)")
    if high > most:
        raise ShapeError(f"Expected {name} to have value at most {most}, but got value {high} (ctc_loss)")


def _paths(
    xp: ArrayNamespace,
    log_probs: Array,
    targets: Array,
    input_lengths: Array,
    target_lengths: Array,
    blank: int,
) -> _Paths:
    _check(log_probs, targets, blank)
    steps, count, classes = log_probs.shape
    _check_lengths("input_lengths", input_lengths, count, steps)
    most = targets.shape[-1]
    _check_lengths("target_lengths", target_lengths, count, most)
    width = int(target_lengths.max())
    positions = xp.arange(width)
    present = positions < target_lengths[:, None]
    if targets.ndim == 1:
        total = int(target_lengths.sum())
        if total != most:
            raise ShapeError(
                f"Expected tensor to have size {total} at dimension 0, but got size {most} for argument #2"
                " 'targets': the sum of target_lengths (ctc_loss)"
            )
        labels = xp.full((count, width), blank)
        labels[present] = targets
    else:
        labels = xp.where(present, targets[:, :width], blank)
    labels = labels.astype("int64")
    if labels.size and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        bad = int(labels.min()) if int(labels.min()) < 0 else int(labels.max())
        raise IndexRangeError(f"ctc_loss: label {bad} is out of range: there are {classes} classes")
    states = xp.full((count, 2 * width + 1), blank)
    states[:, 1::2] = labels
    skips = xp.zeros(states.shape, bool)
    skips[:, 3::2] = xp.not_equal(labels[:, 1:], labels[:, :-1])
    return _Paths(states, skips, 2 * target_lengths + 1)


def _emissions(xp: ArrayNamespace, log_probs: Array, paths: _Paths) -> Array:
    """Return ``log_probs`` of the states at every step, ``[T, N, L]``."""
    return log_probs[:, xp.arange(log_probs.shape[1])[:, None], paths.states]


def _forward(xp: ArrayNamespace, emissions: Array, paths: _Paths) -> Array:
    """Return the log-probabilities of the paths from the beginning, ``[T, N, L]``."""
    result = xp.full(emissions.shape, -float("inf"), emissions.dtype)
    result[0, :, :2] = emissions[0, :, :2]
    skip_penalty = xp.where(paths.skips, 0.0, -float("inf")).astype(emissions.dtype)[:, 2:]
    for t in range(1, emissions.shape[0]):
        last, now = result[t - 1], result[t]
        now[...] = last
        now[:, 1:] = xp.logaddexp(last[:, 1:], last[:, :-1])
        now[:, 2:] = xp.logaddexp(now[:, 2:], last[:, :-2] + skip_penalty)
        now += emissions[t]
    return result


def _backward(xp: ArrayNamespace, emissions: Array, paths: _Paths, input_lengths: Array) -> Array:
    """Return the log-probabilities of the paths to the end, ``[T, N, L]``."""
    result = xp.full(emissions.shape, -float("inf"), emissions.dtype)
    states = xp.arange(emissions.shape[2])
    last = xp.logical_or(states == paths.counts[:, None] - 1, states == paths.counts[:, None] - 2)
    skip_penalty = xp.where(paths.skips, 0.0, -float("inf")).astype(emissions.dtype)[:, 2:]
    ends = xp.where(last, 0.0, -float("inf")).astype(emissions.dtype)
    for t in range(emissions.shape[0] - 1, -1, -1):
        now = result[t]
        if t + 1 < emissions.shape[0]:
            following = result[t + 1]
            now[...] = following
            now[:, :-1] = xp.logaddexp(following[:, :-1], following[:, 1:])
            now[:, :-2] = xp.logaddexp(now[:, :-2], following[:, 2:] + skip_penalty)
        now[...] = xp.where((input_lengths == t + 1)[:, None], ends, now) + emissions[t]
    return result


class CtcLoss(Primitive):
    """Minus the logarithm of each target's probability: ``[N]``, from ``log_probs[T, N, C]``.

    ``targets`` is ``[N, S]``, or all labels concatenated; lengths are ``[N]``. Its gradient assumes, as
    PyTorch's does, that ``log_probs`` are the output of a ``log_softmax``.
    """

    kind = Kind.REDUCE
    inputs = ("log_probs", "targets", "input_lengths", "target_lengths")
    saves = ("log_probs", "targets", "input_lengths", "target_lengths", "out")
    residuals = 1

    def infer(self, log_probs, targets, input_lengths, target_lengths, *, blank=0):
        """One number per sequence."""
        _check(log_probs, targets, blank)
        return Aval((log_probs.shape[1],), log_probs.dtype)

    def forward(self, xp, log_probs, targets, input_lengths, target_lengths, *, blank=0):
        """Return the losses and, as a residual, the paths' log-probabilities from the beginning."""
        paths = _paths(xp, log_probs, targets, input_lengths, target_lengths, blank)
        before = _forward(xp, _emissions(xp, log_probs, paths), paths)
        rows, time = xp.arange(log_probs.shape[1]), xp.maximum(input_lengths - 1, 0)
        blanks = before[time, rows, paths.counts - 1]
        labels = before[time, rows, xp.maximum(paths.counts - 2, 0)]
        total = xp.where(target_lengths > 0, xp.logaddexp(blanks, labels), blanks)
        without_input = xp.where(target_lengths > 0, -float("inf"), 0.0).astype(total.dtype)
        return -xp.where(input_lengths > 0, total, without_input), before

    def vjp_joint(
        self, f, g, out, log_probs, targets, input_lengths, target_lengths, *, needs, residuals, blank=0
    ):
        """Only ``log_probs`` has a gradient."""
        result = f.ctc_loss_grad(
            g, out, residuals[0], log_probs, targets, input_lengths, target_lengths, blank=blank
        )
        return [result, None, None, None]


class CtcLossGrad(Primitive):
    """``g (p - q)`` at the steps of each sequence: p is the probability of a class, q that of the paths
    through it.

    A sequence with an infinite loss has no path: its gradient is NaN, or 0 where ``g`` is 0.
    """

    kind = Kind.INDEX
    inputs = ("g", "losses", "before", "log_probs", "targets", "input_lengths", "target_lengths")

    def infer(self, g, losses, before, log_probs, targets, input_lengths, target_lengths, *, blank=0):
        """The shape of ``log_probs``."""
        return Aval(tuple(log_probs.shape), log_probs.dtype)

    def forward(self, xp, g, losses, before, log_probs, targets, input_lengths, target_lengths, *, blank=0):
        """Join the paths to the end with those from the beginning at every step."""
        paths = _paths(xp, log_probs, targets, input_lengths, target_lengths, blank)
        emissions = _emissions(xp, log_probs, paths)
        joined = before + _backward(xp, emissions, paths, input_lengths)
        finite = xp.isfinite(losses)
        through = xp.exp(
            joined
            - xp.where(emissions > -float("inf"), emissions, 0.0)
            + xp.where(finite, losses, 0.0)[:, None]
        )
        steps, count, classes = log_probs.shape
        result = xp.exp(xp.ascontiguousarray(log_probs))
        result[:, :, blank] -= through[:, :, ::2].sum(axis=2)
        labels = paths.states[:, 1::2]
        starts = xp.arange(steps)[:, None, None] * (count * classes) + xp.arange(count)[:, None] * classes
        xp.add.at(result.reshape(-1), (starts + labels).reshape(-1), -through[:, :, 1::2].reshape(-1))
        scale = xp.where(finite, g, xp.where(g == 0, 0.0, float("nan"))).astype(result.dtype)
        running = xp.arange(steps)[:, None] < input_lengths
        return xp.where(running[:, :, None], result * scale[:, None], result.dtype.type(0))

    def vjp_joint(self, f, g, out, *args, needs, blank=0):
        """Raise UnsupportedError, as PyTorch does."""
        raise UnsupportedError("derivative for ctc_loss's gradient is not implemented, as in torch")


ctc_loss, ctc_loss_grad = CtcLoss(), CtcLossGrad()
