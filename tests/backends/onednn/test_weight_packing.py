"""Weights that are packed once and again when they have changed."""

from __future__ import annotations

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon_cpu.jit.compiler import llvm
from tenon_cpu.onednn.layouts import blocked
from tenon_cpu.onednn.runtime import available
from tenon_cpu.onednn.weight_packing import PackedOnReuse

pytestmark = pytest.mark.skipif(not available(), reason=available().reason)


def test_a_weight_is_packed_in_the_second_call_of_a_version():
    counter, said = [0], []
    packed = (lambda: said.append("compute"), lambda: said.append("pack"))
    lasting = PackedOnReuse(lambda: counter, lambda: said.append("meanwhile"), lambda: packed)

    for version in (0, 0, 0, 1, 2, 2):
        counter[0] = version
        lasting()

    assert said == ["meanwhile", "pack", "compute", "compute", "meanwhile", "meanwhile", "pack", "compute"]


def test_another_counter_of_the_same_number_is_a_change():
    counters, said = [[0], [0], [0]], []
    lasting = PackedOnReuse(counters.pop, lambda: said.append("meanwhile"), lambda: None)

    for _ in range(3):
        lasting()

    assert said == ["meanwhile"] * 3


def test_a_weight_in_the_right_order_is_never_packed():
    counter, said = [0], []
    lasting = PackedOnReuse(lambda: counter, lambda: said.append("meanwhile"), lambda: None)

    for _ in range(3):
        lasting()

    assert said == ["meanwhile"] * 3


def network(kind):
    tenon.manual_seed(0)
    if kind == "linear":
        return nn.Sequential(nn.Linear(96, 64), nn.Tanh(), nn.Linear(64, 80)), tenon.randn(16, 96)
    if kind == "direct":
        return nn.Sequential(nn.Conv2d(32, 64, 3, stride=2), nn.ReLU()), tenon.randn(2, 32, 8, 8)
    return nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()), tenon.randn(4, 64, 16, 16)


def _in_place(net):
    with tenon.no_grad():
        net[0].weight.mul_(2.0)


def _loaded(net):
    net.load_state_dict({name: value * 0.5 for name, value in net.state_dict().items()})


def _stepped(net):
    for parameter in net.parameters():
        parameter.grad = tenon.ones_like(parameter)
    tenon.optim.SGD(net.parameters(), lr=0.1).step()


def _replaced(net):
    net[0].weight.data = net[0].weight.detach() + 1.0


def _through_data(net):
    net[0].weight.data.mul_(2.0)


def _through_numpy(net):
    net[0].weight.detach().numpy()[0] += 1.0


def _through_another_tensor(net):
    other = net[0].weight.detach().clone()
    net[0].weight.data = other
    return lambda: other.mul_(2.0)


@pytest.mark.parametrize("change", [_in_place, _loaded, _stepped, _replaced, _through_data, _through_numpy])
@pytest.mark.parametrize("kind", ["linear", "direct", "winograd"])
def test_a_compiled_network_sees_every_change_of_its_weights(kind, change):
    net, x = network(kind)
    compiled = tenon.compile(net)

    for turn in range(3):
        if turn:
            change(net)
        for _ in range(5):  # recorded, replayed, packed
            with tenon.inference_mode():
                made, expected = compiled(x), net(x)
            np.testing.assert_allclose(made.numpy(), expected.numpy(), rtol=1e-4, atol=1e-4)
    assert compiled.programs


@pytest.mark.skipif(not (llvm.available() and blocked().block), reason="needs LLVM and blocks")
@pytest.mark.parametrize("kind", ["linear", "direct", "winograd"])
def test_training_between_compiled_evaluations_is_seen(kind):
    net, x = network(kind)
    evaluate = tenon.compile(net)
    optimizer = tenon.optim.SGD(net.parameters(), lr=1e-2)

    @tenon.compile
    def train(x):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(6):
        train(x)
        for _ in range(2):
            with tenon.inference_mode():
                made, expected = evaluate(x), net(x)
            np.testing.assert_allclose(made.numpy(), expected.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["linear", "direct", "winograd"])
def test_a_weight_that_others_can_write_unseen_is_never_kept(kind):
    net, x = network(kind)
    change = _through_another_tensor(net)
    array = np.zeros(net[0].bias.shape, np.float32)
    net[0].bias = nn.Parameter(tenon.from_numpy(array))
    compiled = tenon.compile(net)

    for turn in range(3):
        if turn:
            change()
            array += 1.0
        for _ in range(5):
            with tenon.inference_mode():
                np.testing.assert_allclose(compiled(x).numpy(), net(x).numpy(), rtol=1e-4, atol=1e-4)


def test_an_array_given_out_before_the_first_call_is_seen_when_it_changes():
    net, x = network("linear")
    array = net[0].weight.detach().numpy()
    compiled = tenon.compile(net)

    for _ in range(5):
        with tenon.inference_mode():
            made = compiled(x)
    array *= 3.0
    with tenon.inference_mode():
        changed = compiled(x)

    assert not np.allclose(made.numpy(), changed.numpy())
    with tenon.inference_mode():
        np.testing.assert_allclose(changed.numpy(), net(x).numpy(), rtol=1e-4, atol=1e-4)


def test_loading_saving_training_and_moving_a_network_leave_its_weights_countable():
    net, x = network("linear")

    net.load_state_dict(net.state_dict())
    net(x).square().mean().backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    tenon.optim.Adam(net.parameters()).step()
    net.to("cpu").float().eval()

    assert all(len(parameter._counter()) == 1 for parameter in net.parameters())
