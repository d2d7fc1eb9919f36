"""Rules that use a parameter as a whole, and L-BFGS, against torch."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tenon

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle


def twins(*shapes, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    values = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    ours = [tenon.nn.Parameter(tenon.tensor(v)) for v in values]
    return ours, [torch.nn.Parameter(torch.tensor(v)) for v in values]


def train(ps, qs, optimizers, steps):
    rng = np.random.default_rng(1)
    for _ in range(steps):
        for p, q in zip(ps, qs, strict=True):
            g = rng.standard_normal(tuple(q.shape))
            p.grad, q.grad = tenon.tensor(g).to(p.dtype), torch.tensor(g).to(q.dtype)
        for optimizer in optimizers:
            optimizer.step()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"lr": 0.5, "eps": (1e-6, 0.1), "d": 1.5, "weight_decay": 0.1, "maximize": True},
        {"beta2_decay": -0.3},
    ],
    ids=str,
)
def test_adafactor_is_torchs(options):
    ps, qs = twins((4, 3), (5,), (), (2, 3, 4), (1, 6))
    ours, theirs = tenon.optim.Adafactor(ps, **options), torch.optim.Adafactor(qs, **options)

    train(ps, qs, (ours, theirs), 20)

    for p, q in zip(ps, qs, strict=True):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-12)
        mine, yours = ours.state[p], theirs.state[q]
        assert mine.keys() == yours.keys()
        for key in mine:
            np.testing.assert_allclose(mine[key].numpy(), yours[key].numpy(), rtol=1e-12)


def test_adafactor_leaves_empty_parameters_alone():
    empty = tenon.nn.Parameter(tenon.zeros(0, 3))
    empty.grad = tenon.zeros(0, 3)
    optimizer = tenon.optim.Adafactor([empty])

    optimizer.step()

    assert empty.shape == (0, 3) and optimizer.state[empty]["step"] == 1


@pytest.mark.parametrize(
    "options", [{}, {"nesterov": False, "adjust_lr_fn": "match_rms_adamw", "weight_decay": 0.0}], ids=str
)
def test_muon_is_torchs_but_for_its_bfloat16(options):
    ps, qs = twins((8, 3), (3, 8), (5, 5), dtype=np.float32)
    before = [p.detach().clone() for p in ps]
    ours, theirs = tenon.optim.Muon(ps, lr=0.01, **options), torch.optim.Muon(qs, lr=0.01, **options)

    train(ps, qs, (ours, theirs), 10)

    for p, q, start in zip(ps, qs, before, strict=True):
        moved, wanted = (p.detach() - start).numpy(), q.detach().numpy() - start.numpy()
        np.testing.assert_allclose(moved, wanted, atol=0.02 * np.abs(wanted).max())
        np.testing.assert_allclose(
            ours.state[p]["momentum_buffer"].numpy(),
            theirs.state[q]["momentum_buffer"].numpy(),
            rtol=1e-4,
            atol=1e-6,
        )


def test_muon_draws_singular_values_near_one():
    p = tenon.nn.Parameter(tenon.zeros(6, 4))
    p.grad = tenon.tensor(np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32))

    tenon.optim.Muon([p], lr=1.0, weight_decay=0.0).step()

    values = np.linalg.svd(p.detach().numpy() / math.sqrt(1.5), compute_uv=False)
    assert (values > 0.6).all() and (values < 1.3).all()


def test_muon_refuses_what_is_not_a_real_matrix():
    for bad in (tenon.zeros(3), tenon.zeros(2, 2, 2)):
        with pytest.raises(ValueError, match="only supports 2D parameters"):
            tenon.optim.Muon([tenon.nn.Parameter(bad)])


def rosenbrock(lib, p):
    x, y = p[0], p[1]
    return (1 - x) ** 2 + 100 * (y - x * x) ** 2


def least_squares(lib, p):
    a = lib.tensor(np.random.default_rng(3).standard_normal((6, 4)))
    return ((a @ p[0] - 1) ** 2).sum() + (p[1] * p[1]).sum() + (p[0].cos() * 0.1).sum()


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
@pytest.mark.parametrize("history", [100, 2])
@pytest.mark.parametrize(
    ("problem", "shapes", "lr"), [(rosenbrock, [(), ()], 0.02), (least_squares, [(4,), (2, 3)], 0.05)]
)
def test_lbfgs_takes_torchs_steps(problem, shapes, lr, history, search):
    ps, qs = twins(*shapes, seed=5)
    options = {"lr": 1.0 if search else lr, "max_iter": 6, "history_size": history, "line_search_fn": search}
    found = []
    for lib, params in ((tenon, ps), (torch, qs)):
        optimizer = lib.optim.LBFGS(params, **options)
        calls = []

        def closure(lib=lib, params=params, optimizer=optimizer, calls=calls):
            optimizer.zero_grad()
            loss = problem(lib, params)
            loss.backward()
            calls.append(loss.item())
            return loss

        losses = [optimizer.step(closure).item() for _ in range(4)]
        found.append((losses, len(calls), optimizer))
    (losses, calls, ours), (expected, others, theirs) = found

    np.testing.assert_allclose(losses, expected, rtol=1e-7)
    assert calls == others
    mine, yours = ours.state[ps[0]], theirs.state[qs[0]]
    assert mine["func_evals"] == yours["func_evals"] and mine["n_iter"] == yours["n_iter"]
    np.testing.assert_allclose(mine["d"].numpy(), yours["d"].numpy(), rtol=1e-5, atol=1e-9)


def test_lbfgs_goes_on_from_a_checkpoint():
    def run(optimizer, p, steps):
        def closure():
            optimizer.zero_grad()
            loss = rosenbrock(tenon, [p[0], p[1]])
            loss.backward()
            return loss

        return [optimizer.step(closure).item() for _ in range(steps)]

    first = tenon.nn.Parameter(tenon.tensor([-1.0, 1.5], dtype=tenon.float64))
    whole = tenon.optim.LBFGS([first], max_iter=3, line_search_fn="strong_wolfe")
    run(whole, first, 2)
    second = tenon.nn.Parameter(first.detach().clone())
    resumed = tenon.optim.LBFGS([second], max_iter=3, line_search_fn="strong_wolfe")
    resumed.load_state_dict(whole.state_dict())

    assert run(resumed, second, 3) == run(whole, first, 3)


def test_lbfgs_trains_complex_parameters_as_pairs():
    p = tenon.nn.Parameter(tenon.tensor([1 + 2j, -1j], dtype=tenon.complex128))
    target = tenon.tensor([0.5 - 1j, 2.0], dtype=tenon.complex128)
    optimizer = tenon.optim.LBFGS([p], max_iter=20, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = (p - target).abs().square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)

    np.testing.assert_allclose(p.detach().numpy(), target.numpy(), atol=1e-6)


def test_lbfgs_lets_an_infinite_parameter_without_gradient_be():
    masked, p = tenon.nn.Parameter(tenon.tensor([-math.inf])), tenon.nn.Parameter(tenon.ones(2))
    optimizer = tenon.optim.LBFGS([masked, p], lr=0.1)

    def closure():
        optimizer.zero_grad()
        loss = (p**2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)

    assert p.detach().isfinite().all() and (p.detach() < 1).all()
    assert masked.item() == -math.inf


def test_lbfgs_says_what_it_needs():
    p = tenon.nn.Parameter(tenon.ones(1))

    with pytest.raises(ValueError, match="parameter groups"):
        tenon.optim.LBFGS([{"params": [p]}, {"params": [tenon.nn.Parameter(tenon.ones(1))]}])
    with pytest.raises(RuntimeError, match="only 'strong_wolfe' is supported"):
        tenon.optim.LBFGS([p], line_search_fn="armijo")
    with pytest.raises(TypeError, match="needs a closure"):
        tenon.optim.LBFGS([p]).step()
