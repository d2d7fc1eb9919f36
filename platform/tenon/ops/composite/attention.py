"""Attention as one node: means of values, weighted by a softmax of products of queries and keys.

The weights are not kept. The gradient recomputes them from the maximum of each row of scores and the
reciprocal of its sum of exponentials, so a backend can process both passes in blocks of queries.
``Backend.has_attention_kernel`` returns whether it does so for given arrays; for others the decomposition,
which keeps the weights, is faster.
"""

from __future__ import annotations

import math

from tenon.engine.op import Composite
from tenon.engine.sharding_rule import Factors, ShardingRule, numbered
from tenon.engine.types import Operand, OpNamespace


def _scores(f: OpNamespace, query: Operand, key: Operand, bias: Operand, scale: float) -> Operand:
    rank = len(key.shape)
    result = f.matmul(f.mul(query, scale), f.transpose(key, axis0=rank - 2, axis1=rank - 1))
    return result if bias is None else f.add(result, bias)


def _weights(f: OpNamespace, scores: Operand, bias: Operand, causal: bool) -> Operand:
    axis = len(scores.shape) - 1
    return f.softmax(scores, axis=axis) if bias is None or causal else f.safe_softmax(scores, axis=axis)


def _factors(query: Operand, key: Operand, bias: Operand) -> tuple[Factors, Factors, Factors]:
    """The factors of query, key and value, of their leading axes, and of the bias."""
    lead = numbered(query.shape[:-2])
    scores = (*query.shape[:-1], key.shape[-2])
    own = () if bias is None else tuple(bias.shape)
    first = len(scores) - len(own)
    split = tuple(
        axis + first if axis + first < len(lead) and size == scores[axis + first] else None
        for axis, size in enumerate(own)
    )
    return (*lead, None, None), lead, split


class Attention(Composite):
    """``softmax(query @ key.T * scale + bias) @ value`` over the last two axes; the other axes are equal.

    ``bias`` may be None and gets no gradient. ``causal`` states that ``bias`` is a causal mask: 0 for keys at
    the position of the query and before, minus infinity after it. The result is 0 for a query all of whose
    keys are masked.
    """

    inputs = ("query", "key", "value", "bias")
    saves = ("query", "key", "value", "bias", "out")
    residuals = 2
    grad_name = "ScaledDotProductFlashAttentionForCpuBackward0"

    def sharding_rule(self, query, key, value, bias, *, scale, causal=False):
        """Batch and heads are independent."""
        rows, lead, scores = _factors(query, key, bias)
        return ShardingRule((rows, rows, rows, scores), (rows, (*lead, None), (*lead, None)))

    def decompose(self, f, query, key, value, bias, *, scale, causal=False):
        scores = _scores(f, query, key, bias, scale)
        return f.matmul(_weights(f, scores, bias, causal), value)

    def raw_forward(self, f, query, key, value, bias, *, scale, causal=False):
        """Return the result, then of each row of scores its maximum and the reciprocal of the sum of
        exponentials of the differences from it."""
        scores = _scores(f, query, key, bias, scale)
        out = f.matmul(_weights(f, scores, bias, causal), value)
        axes = (len(scores.shape) - 1,)
        if not scores.shape[-1]:  # no keys, as if all were masked
            none = f.sum(scores, axes=axes)
            return out, none, none
        peak = f.amax(scores, axes=axes, keepdims=True)
        masked = f.eq(peak, -math.inf)
        peak = f.where(masked, 0.0, peak)
        total = f.sum(f.exp(f.sub(scores, peak)), axes=axes, keepdims=True)
        share = f.where(masked, 0.0, f.reciprocal(total))
        return out, f.reshape(peak, shape=peak.shape[:-1]), f.reshape(share, shape=peak.shape[:-1])

    def vjp_joint(self, f, g, out, query, key, value, bias, *, needs, residuals, scale, causal=False):
        """Compute all three gradients with one op."""
        result = f.attention_grad(
            g, out, query, key, value, bias, *residuals, scale=scale, causal=causal, needs=needs[:3]
        )
        return [*(m if n else None for m, n in zip(result, needs, strict=False)), None]


class AttentionGrad(Composite):
    """Gradients of ``attention`` with respect to query, key and value; ``needs`` selects those to compute."""

    inputs = ("g", "out", "query", "key", "value", "bias", "peak", "share")
    outputs = 3

    def sharding_rule(self, g, out, query, key, value, bias, peak, share, *, scale, needs, causal=False):
        """Batch and heads are independent."""
        rows, lead, scores = _factors(query, key, bias)
        sums = (*lead, None)
        return ShardingRule((rows, rows, rows, rows, rows, scores, sums, sums), (rows,) * 3)

    def decompose(self, f, g, out, query, key, value, bias, peak, share, *, scale, needs, causal=False):
        rank = len(key.shape)
        swap = {"axis0": rank - 2, "axis1": rank - 1}
        weights = _weights(f, _scores(f, query, key, bias, scale), bias, causal)
        dquery, dkey, dvalue = query, key, value
        if needs[2]:
            dvalue = f.matmul(f.transpose(weights, **swap), g)
        if needs[0] or needs[1]:
            slopes = f.softmax_grad(f.matmul(g, f.transpose(value, **swap)), weights, axis=rank - 1)
            if needs[0]:
                dquery = f.mul(f.matmul(slopes, key), scale)
            if needs[1]:
                dkey = f.matmul(f.transpose(slopes, **swap), f.mul(query, scale))
        return dquery, dkey, dvalue


attention, attention_grad = Attention(), AttentionGrad()

__all__ = ["attention", "attention_grad"]
