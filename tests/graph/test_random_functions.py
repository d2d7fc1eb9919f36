"""Random functions: compiled ones return, change and differentiate what eager ones do."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tenon
from tenon.nn import functional as F

#: What a step may do to the list of values ``v``; ``i`` and ``j`` choose among them.
STEPS = {
    "unary": lambda v, i, j: v.append([v[i].sin, v[i].exp, v[i].tanh, v[i].abs, v[i].sigmoid][j % 5]()),
    "binary": lambda v, i, j: v.append([v[i].add, v[i].mul, v[i].sub, v[i].maximum][j % 4](v[j % len(v)])),
    "number": lambda v, i, j: v.append(v[i] * 0.5 + j),
    "sum": lambda v, i, j: v.append(v[i] - v[i].sum(j % 2, keepdim=True)),
    "mean": lambda v, i, j: v.append(v[i].mean().expand(3, 3) + v[j % len(v)]),
    "product": lambda v, i, j: v.append(v[i] @ v[j % len(v)].T * 0.1),
    "turn": lambda v, i, j: v.append(v[i].T),
    "view": lambda v, i, j: v.append(v[i].reshape(9)[: 3 * (1 + j % 3)].sum() + v[i]),
    "row": lambda v, i, j: v.append(v[i][j % 3] + v[i]),
    "softmax": lambda v, i, j: v.append(v[i].softmax(j % 2)),
    "where": lambda v, i, j: v.append(tenon.where(v[i] > 0, v[j % len(v)], v[i])),
    "dropout": lambda v, i, j: v.append(F.dropout(v[i], 0.1 + 0.2 * (j % 3))),
    "noise": lambda v, i, j: v.append(v[i] + tenon.randn(3, 3, dtype=v[i].dtype)),
    "norm": lambda v, i, j: v.append(F.layer_norm(v[i], (3,))),
    "in place": lambda v, i, j: v.append(v[i].clone().mul_(1.5).add_(v[j % len(v)])),
    "row in place": lambda v, i, j: v.append(_row_changed(v[i].clone(), j)),
    "region in place": lambda v, i, j: v.append(_region_set(v[i].clone(), v[j % len(v)])),
    "detached": lambda v, i, j: v.append(v[i].detach() * v[j % len(v)]),
}


def _row_changed(x, j):
    row = x[j % 3]
    row.mul_(2.0)
    return x + row


def _region_set(x, y):
    x[1:, :2] = y[:2, 1:]
    return x


def function_of(steps):
    """``f(x, w)``: the last values, and with gradients of a number made of all of them left in ``w``."""

    def f(x, w):
        values = [x, w * 1.0]
        for name, i, j in steps:
            STEPS[name](values, i % len(values), j)
        total = sum(v.square().mean() for v in values)
        if total.requires_grad:
            total.backward()
        return values[-1].detach(), total.detach()

    return f


def outcome(f, dtype, calls):
    """The results and side effects of some calls, and the state of the random stream afterwards."""
    tenon.manual_seed(5)
    weight = tenon.full((3, 3), 0.5, dtype=dtype).requires_grad_()
    found = []
    for i in range(calls):
        weight.grad = None
        x = tenon.tensor(np.random.default_rng(i).normal(size=(3, 3))).to(dtype)
        found += [each.double().numpy().copy() for each in (*f(x, weight), weight.grad, x)]
    return [*found, tenon.rand(2).numpy()]


@pytest.mark.slow
@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 9), st.integers(0, 9)), max_size=8),
    st.sampled_from(["float32", "float32", "float64", "bfloat16"]),
)
def test_a_compiled_function_does_what_the_eager_one_does(steps, name):
    dtype = getattr(tenon, name)
    f = function_of(steps)
    compiled = tenon.compile(f, fullgraph=True)

    expected, found = outcome(f, dtype, 5), outcome(compiled, dtype, 5)

    assert len(compiled.programs) == 1, compiled.reasons
    tolerance = {"float32": 1e-4, "float64": 1e-9, "bfloat16": 0.1}[name]
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, tolerance, tolerance, equal_nan=True)
