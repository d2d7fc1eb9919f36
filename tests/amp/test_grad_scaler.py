"""GradScaler step by step beside torch's, and what it refuses."""

from __future__ import annotations

import copy
import pickle

import pytest

import tenon
from tenon.errors import ScalerError, TenonWarning

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle
INF, NAN = float("inf"), float("nan")


def setup(T, **options):
    """A weight, an optimizer that moves it by its gradient, and a scaler."""
    weight = T.full((2,), 4.0, requires_grad=True)
    options = {"init_scale": 8.0, "growth_interval": 2} | options
    return weight, T.optim.SGD([weight], lr=1.0), T.amp.GradScaler("cpu", **options)


def iterate(weight, optimizer, scaler, slope, unscale=False):
    """Run one iteration whose gradient is ``slope``; return all observable state."""
    optimizer.zero_grad()
    scaler.scale((weight * slope).sum()).backward()
    scaled = weight.grad.tolist()
    if unscale:
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    return scaled, weight.grad.tolist(), weight.tolist(), scaler.get_scale(), scaler.state_dict()


@pytest.mark.parametrize("unscale", [False, True])
def test_scale_weights_and_state_follow_torchs(unscale):
    slopes = [0.25, 0.5, INF, 0.25, NAN, -0.5, 0.25, 1e38, 0.125, 0.5]
    seen = {}
    for T in (torch, tenon):
        parts = setup(T, growth_factor=4.0, backoff_factor=0.25)
        seen[T.__name__] = [iterate(*parts, slope, unscale) for slope in slopes]

    assert repr(seen["tenon"]) == repr(seen["torch"])


def test_a_step_with_an_infinite_gradient_is_left_out():
    weight, optimizer, scaler = setup(tenon)

    iterate(weight, optimizer, scaler, INF)

    assert weight.tolist() == [4.0, 4.0]
    assert scaler.get_scale() == 4.0


def test_one_overflow_stops_its_optimizer_only_and_shrinks_the_scale_for_all():
    for T in (torch, tenon):
        a, b = (T.ones(1, requires_grad=True) for _ in "ab")
        first, second = T.optim.SGD([a], lr=1.0), T.optim.SGD([b], lr=1.0)
        scaler = T.amp.GradScaler("cpu", init_scale=2.0)
        scaler.scale(a.sum() * INF + b.sum()).backward()
        scaler.step(first)
        scaler.step(second)
        scaler.update()

        assert (a.item(), b.item(), scaler.get_scale()) == (1.0, 0.0, 1.0)


def test_nests_of_outputs_are_scaled():
    scaler = tenon.amp.GradScaler("cpu", init_scale=4.0)

    made = scaler.scale([tenon.ones(1), (tenon.ones(1), tenon.ones(2))])

    assert [made[0].item(), made[1][0].item(), made[1][1].tolist()] == [4.0, 4.0, [4.0, 4.0]]
    with pytest.raises(ScalerError, match="Tensor or an iterable"):
        scaler.scale(3)


def test_a_disabled_scaler_is_not_there():
    weight, optimizer, scaler = setup(tenon, enabled=False)

    assert iterate(weight, optimizer, scaler, 0.5)[2] == [3.5, 3.5]
    assert scaler.state_dict() == {} and scaler.get_scale() == 1.0
    with pytest.warns(TenonWarning, match="CUDA is not available"):
        assert tenon.cuda.is_available() or not tenon.amp.GradScaler().is_enabled()


def test_wrong_orders_are_refused_as_torch_does():
    for T in (torch, tenon):
        weight, optimizer, scaler = setup(T)
        with pytest.raises((ScalerError, AssertionError), match="scale"):
            scaler.step(optimizer)
        scaler.scale(weight.sum()).backward()
        scaler.unscale_(optimizer)
        with pytest.raises(RuntimeError, match="already been called"):
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        with pytest.raises(RuntimeError, match="already been called"):
            scaler.step(optimizer)
        with pytest.raises(RuntimeError, match=r"after step\(\)"):
            scaler.unscale_(optimizer)


def test_float16_gradients_are_refused():
    weight = tenon.ones(2, dtype=tenon.float16, requires_grad=True)
    optimizer = tenon.optim.SGD([weight], lr=1.0)
    scaler = tenon.amp.GradScaler("cpu", init_scale=2.0)
    scaler.scale(weight.sum()).backward()

    with pytest.raises(ValueError, match="FP16"):
        scaler.unscale_(optimizer)


def test_state_goes_on_in_another_scaler_a_pickle_and_a_copy():
    parts = setup(tenon, growth_interval=3)
    iterate(*parts, 0.5)
    fresh = tenon.amp.GradScaler("cpu")
    fresh.load_state_dict(parts[2].state_dict())

    others = [fresh, pickle.loads(pickle.dumps(parts[2])), copy.deepcopy(parts[2])]

    expected = [iterate(parts[0], parts[1], parts[2], 0.5)[3:] for _ in range(4)]
    for other in others:
        weight, optimizer, _ = setup(tenon)
        assert [iterate(weight, optimizer, other, 0.5)[3:] for _ in range(4)] == expected


def test_a_state_that_lacks_something_changes_nothing():
    _, _, scaler = setup(tenon)
    before = scaler.state_dict()
    broken = {k: v for k, v in before.items() if k != "backoff_factor"} | {"scale": 99.0}

    with pytest.raises(ScalerError, match="backoff_factor"):
        scaler.load_state_dict(broken)
    with pytest.raises(RuntimeError, match="empty"):
        scaler.load_state_dict({})

    assert scaler.state_dict() == before


def test_a_new_scale_is_set():
    weight, optimizer, scaler = setup(tenon)
    scaler.scale(weight.sum()).backward()
    scaler.step(optimizer)
    scaler.update(3.0)

    assert scaler.get_scale() == 3.0
    scaler.update(tenon.tensor([5.0]))
    assert scaler.get_scale() == 5.0
    with pytest.raises(ScalerError, match="new_scale should be"):
        scaler.update(tenon.ones(2))
