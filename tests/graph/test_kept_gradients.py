"""Gradients that a caller keeps do not change, though programs write theirs to the same memory."""

import warnings

import numpy as np
import pytest

import tenon
from tenon import nn

KEPT = {
    "gradient": lambda g: g,
    "array": lambda g: g.numpy(),
    "view": lambda g: g.view(-1),
    "detached": lambda g: g.detach(),
    "row": lambda g: g[0],
}


def trained(twins, keep, zero_inside, compiled, calls=9):
    """Return the kept gradients, their values at the time, and the compiled function."""
    tenon.manual_seed(0)
    model = twins.mlp()
    optimizer = tenon.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        if zero_inside:
            optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    step = tenon.compile(step) if compiled else step
    kept, then = [], []
    for i in range(calls):
        if not zero_inside:
            optimizer.zero_grad()
        step(twins.batch(i))
        kept += [keep(p.grad) for p in model.parameters()]
        then += [np.array(k) for k in kept[len(then) :]]
    return kept, then, step


@pytest.mark.parametrize("zero_inside", [True, False])
@pytest.mark.parametrize("what", KEPT)
def test_what_is_kept_of_a_gradient_stays_what_it_was(twins, what, zero_inside):
    _, eager, _ = trained(twins, KEPT[what], zero_inside, compiled=False)

    kept, then, step = trained(twins, KEPT[what], zero_inside, compiled=True)

    for now, before, wanted in zip(kept, then, eager, strict=True):
        np.testing.assert_array_equal(np.array(now), before)
        np.testing.assert_allclose(before, wanted, rtol=1e-5, atol=1e-6)
    assert len(step.programs) == 1
    assert any("still in use" in reason for reason in step.reasons) == (what != "gradient")


@pytest.mark.parametrize("what", [what for what in KEPT if what != "gradient"])
def test_calls_are_replayed_again_when_an_array_is_let_go_and_give_copies(twins, what):
    model, ran = nn.Linear(4, 2), []

    @tenon.compile
    def step(x):
        ran.append(len(ran))
        model.zero_grad()
        model(x).sum().backward()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of ``ran``, which a program leaves alone
        for i in range(5):
            step(twins.batch(i))
    kept = KEPT[what](model.weight.grad)
    before = len(ran)
    for i in range(2):
        step(twins.batch(i))
    assert len(ran) == before + 2, "a program would write over what is kept"
    del kept
    for i in range(3):
        step(twins.batch(i))
        kept = KEPT[what](model.weight.grad)

    assert len(ran) == before + 2
    wanted = np.tile(twins.batch(2).numpy().sum(0), (2, 1))
    np.testing.assert_allclose(model.weight.grad.numpy(), wanted, rtol=1e-5)
    np.testing.assert_array_equal(np.array(kept), np.array(KEPT[what](model.weight.grad)))


@pytest.mark.parametrize("keep", [lambda g: g, lambda g: g.numpy()], ids=["gradient", "array"])
def test_a_step_that_returns_what_is_still_differentiable_leaves_gradients_to_their_keepers(twins, keep):
    def kept(compiled):
        tenon.manual_seed(0)
        model = nn.Linear(4, 2)

        def step(x):
            model.zero_grad()
            model(x).sum().backward()
            return model(x)

        step = tenon.compile(step) if compiled else step
        found = []
        for i in range(8):
            out = step(twins.batch(i))
            found.append(keep(model.weight.grad))
            out.sum().backward()  # on top of the program's own
        return [np.array(g) for g in found], np.array(model.weight.grad)

    for wanted, got in zip(kept(False), kept(True), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_a_compiled_update_keeps_no_gradient_of_a_compiled_backward(twins):
    model = nn.Linear(4, 2)
    optimizer = tenon.optim.SGD(model.parameters(), lr=0.1)
    backward = tenon.compile(lambda x: model(x).square().mean().backward())
    update = tenon.compile(lambda: (optimizer.step(), optimizer.zero_grad())[1])

    for i in range(7):
        backward(twins.batch(i))
        backward(twins.batch(i))
        update()

    assert len(backward.programs) == 2 and len(update.programs) == 1
    assert not any("still in use" in reason for reason in backward.reasons), backward.reasons


def test_a_gradient_from_before_the_call_may_be_read_where_gradients_flow():
    weight = nn.Parameter(tenon.ones(3))
    compiled = tenon.compile(lambda x: (weight * x * weight.grad).sum())

    for i in range(1, 7):
        weight.grad = tenon.full((3,), float(i))
        x = tenon.ones(3, requires_grad=True)
        compiled(x).backward()

        assert x.grad.tolist() == [i] * 3 and weight.grad.tolist() == [2 * i] * 3
    assert len(compiled.programs) == 2
