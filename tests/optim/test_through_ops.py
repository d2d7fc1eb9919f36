"""Steps that a recorder or profiler watches: the same rule as ops on tensors, for every kind of parameter."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.optim import batch, update
from tenon.testing.suites.optimizer import watching


def trained(name, values, grads, watched, dtype=None, **options):
    p = nn.Parameter(tenon.tensor(values, dtype=dtype))
    optimizer = getattr(tenon.optim, name)([p], **options)
    seen = []
    for grad in grads:
        p.grad = tenon.tensor(grad, dtype=dtype)
        if watched:
            with watching(seen):
                optimizer.step()
        else:
            optimizer.step()
    return p, optimizer.state.get(p, {}), seen


GRADS = [[0.3 + 0.2j, -0.1j], [1.0 + 0j, 2.0], [0.0, 1j]]


@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop", "Adagrad"])
def test_complex_parameters_are_pairs_of_real_numbers_there_too(name):
    options = {"momentum": 0.9} if name == "SGD" else {}

    p, state, _ = trained(name, [1 + 1j, -2.0], GRADS, False, **options)
    q, other, seen = trained(name, [1 + 1j, -2.0], GRADS, True, **options)

    assert seen
    np.testing.assert_allclose(q.detach().numpy(), p.detach().numpy(), rtol=1e-6)
    assert {k: v.dtype for k, v in other.items()} == {k: v.dtype for k, v in state.items()}


@pytest.mark.parametrize("dtype", [tenon.bfloat16, tenon.float16])
def test_short_floats_are_computed_in_float32_there_too(dtype):
    grads = [[0.5, -1.0], [0.25, 3.0]]

    p, state, _ = trained("Adam", [1.0, 2.0], grads, False, dtype, lr=0.1)
    q, other, _ = trained("Adam", [1.0, 2.0], grads, True, dtype, lr=0.1)

    assert p.tolist() == q.tolist()
    assert {k: v.tolist() for k, v in other.items()} == {k: v.tolist() for k, v in state.items()}


@pytest.mark.parametrize("name", ["Adam", "AdamW", "RMSprop"])
def test_capturable_steps_count_and_rate_in_tensors_that_a_recorder_sees(name):
    grads = [[0.5, -1.0], [0.25, 3.0], [1.0, 1.0]]
    rate = tenon.tensor(0.1)

    p, _, _ = trained(name, [1.0, 2.0], grads, False, lr=0.1)
    q, state, seen = trained(name, [1.0, 2.0], grads, True, lr=rate, capturable=True)

    np.testing.assert_allclose(q.detach().numpy(), p.detach().numpy(), rtol=1e-4)
    assert state["step"].item() == 3
    assert seen.count("add") > 3 * len(grads) - 1


def test_watched_and_unwatched_steps_may_alternate():
    ps = [nn.Parameter(tenon.ones(2)) for _ in range(2)]
    optimizer = tenon.optim.Adam(ps)
    for step in range(9):
        for p in ps:
            p.grad = tenon.ones(2)
        with watching([]) if step in (3, 4, 7) else nullcontext():
            optimizer.step()

    np.testing.assert_allclose(ps[0].detach().numpy(), 1 - 9e-3, rtol=1e-5)
    assert optimizer.state[ps[1]]["step"].item() == 9


def test_gradients_of_another_dtype_are_taken_and_change_no_dtype():
    for own, other in ((tenon.float32, tenon.float64), (tenon.float64, tenon.float32)):
        ps = [nn.Parameter(tenon.ones(3, dtype=own)) for _ in range(2)]
        optimizer = tenon.optim.Adam(ps, lr=0.5)
        for _ in range(3):
            for p in ps:
                p._grad = tenon.ones(3, dtype=other)  # as after an exchange of data between backward and step
            optimizer.step()

        assert ps[0].dtype is own and optimizer.state[ps[0]]["exp_avg"].dtype is own
        np.testing.assert_allclose(ps[0].detach().numpy(), -0.5, rtol=1e-5)


def test_a_batch_never_outgrows_a_piece(monkeypatch):
    results = []
    for piece, small in ((1 << 14, -1), (30, 1 << 12)):
        monkeypatch.setattr(update, "PIECE", piece)
        monkeypatch.setattr(batch, "SMALL", small)
        ps = [nn.Parameter(tenon.arange(n, dtype=tenon.float32)) for n in (20, 5, 4, 29, 3, 50, 2)]
        optimizer = tenon.optim.AdamW(ps)
        for p in ps:
            p.grad = tenon.ones_like(p)
        for _ in range(4):
            optimizer.step()
        results.append([p.tolist() for p in ps])

    (plan,) = optimizer._plans.values()
    assert [[p.numel() for p in b.params] for b in plan.batches] == [[20, 5, 4]]
    assert results[0] == results[1]
