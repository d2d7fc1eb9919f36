"""Models of unusual shape under DistributedDataParallel, after torch's own tests of it."""

from collections import namedtuple

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.distributed.communication.threaded import run_ranks
from tenon.nn import Module, Parameter
from tenon.nn.parallel import DistributedDataParallel

Pair = namedtuple("Pair", "a b")
DATA = np.random.default_rng(0).standard_normal((8, 4))


class Tied(Module):
    """One weight under two names, used twice; a second layer; outputs of several kinds."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(1)
        self.encode = Parameter(tenon.from_numpy(rng.standard_normal((4, 4))))
        self.decode = self.encode
        self.other = Parameter(tenon.from_numpy(rng.standard_normal((4, 4))))

    def forward(self, x, *, kind="tensor"):
        first = (x @ self.encode).sin() @ self.decode
        second = x @ self.other
        if kind == "pair":
            return Pair(first, second)
        if kind == "nested":
            return {"first": [first, {"inner": second}], "text": "unused"}
        return first + second


def losses():
    def nested(model, x):
        found = model(x, kind="nested")
        return found["first"][0].square().mean() + found["first"][1]["inner"].sin().mean()

    def part(model, x):
        return model(x, kind="pair").a.square().mean()

    def twice(model, x):
        return model(x).square().mean() + model(2 * x).sin().mean()

    def pair(model, x):
        found = model(x, kind="pair")
        return (found.a * found.b).mean()

    return {"nested": nested, "one output ignored": part, "two forwards": twice, "named tuple": pair}


def gradients(module):
    return {n: None if p.grad is None else p.grad.numpy().copy() for n, p in module.named_parameters()}


def same(found, expected, factor=1.0):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if value is None:
            assert found[name] is None
        else:
            np.testing.assert_allclose(found[name], factor * value, rtol=1e-10, atol=1e-12, err_msg=name)


def alone(loss, passes=1):
    model = Tied()
    for _ in range(passes):
        loss(model, tenon.from_numpy(DATA)).backward()
    return gradients(model)


@pytest.mark.parametrize("kind", losses())
@pytest.mark.parametrize("size", [2, 4])
def test_gradients_are_those_of_one_process(kind, size):
    loss = losses()[kind]

    def work(communicator):
        model = DistributedDataParallel(Tied(), find_unused_parameters=True)
        for _ in range(2):
            model.zero_grad()
            loss(model, tenon.from_numpy(np.array(DATA[communicator.rank :: size]))).backward()
        return gradients(model.module)

    for result in run_ranks(size, work):
        same(result, alone(loss))


def test_each_backward_without_no_sync_averages_what_is_there():
    """As in torch: the second backward adds to gradients that all ranks share already."""
    loss = losses()["two forwards"]

    def work(communicator):
        model = DistributedDataParallel(Tied())
        for _ in range(3):
            loss(model, tenon.from_numpy(np.array(DATA[communicator.rank :: 2]))).backward()
        return gradients(model.module)

    for result in run_ranks(2, work):
        same(result, alone(loss, 3))


def test_two_backward_passes_through_one_graph_add_up():
    def work(communicator):
        model = DistributedDataParallel(Tied())
        loss = model(tenon.from_numpy(np.array(DATA[communicator.rank :: 2]))).square().mean()
        loss.backward(retain_graph=True)
        loss.backward()
        return gradients(model.module)

    expected = alone(lambda model, x: model(x).square().mean(), 2)
    for result in run_ranks(2, work):
        same(result, expected)


def test_the_module_itself_is_trained_too():
    """A forward of the inner module is not intercepted, its gradients are averaged."""

    def work(communicator):
        model = DistributedDataParallel(Tied())
        model.module(tenon.from_numpy(np.array(DATA[communicator.rank :: 2]))).square().mean().backward()
        return gradients(model.module)

    for result in run_ranks(2, work):
        same(result, alone(lambda model, x: model(x).square().mean()))


def test_inference_sends_nothing():
    def work(communicator):
        model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2)))
        with tenon.no_grad():
            if communicator.rank == 0:
                model(tenon.ones(3, 4))
        model.eval()
        return [model(tenon.ones(3, 4)).shape[0] for _ in range(communicator.rank)]

    assert run_ranks(3, work) == [[], [3], [3, 3]]


def test_gradients_kept_from_an_earlier_step_keep_their_values():
    def work(communicator):
        model = DistributedDataParallel(Tied())
        kept = []
        for step in range(3):
            model.zero_grad()
            x = tenon.from_numpy((step + 1.0) * DATA[communicator.rank :: 2])
            model(x).square().mean().backward()
            kept.append(model.module.other.grad)
        return [gradient.numpy().copy() for gradient in kept]

    first, second = run_ranks(2, work)
    for step in range(3):
        expected = alone(lambda model, x, factor=step + 1.0: model(factor * x).square().mean())["other"]
        np.testing.assert_allclose(first[step], expected, rtol=1e-10)
        assert (first[step] == second[step]).all()


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_quantized_layers_next_to_layers_that_learn_are_those_of_rank_0(compiled):
    fresh = [nn.Linear(4, 4) for _ in range(2)]
    quantized = [tenon.quantization.quantize_dynamic(layer) for layer in fresh]

    def work(communicator):
        model = DistributedDataParallel(nn.Sequential(quantized[communicator.rank], nn.Linear(4, 2)))

        def step(x):
            model(x).square().mean().backward()

        run = tenon.compile(step) if compiled else step
        for _ in range(2):
            run(tenon.ones(2, 4))
        weight = model.module[0]._buffers["weight"]
        assert not weight.raw.flags.writeable and model.module[1].weight.grad is not None
        return weight.numpy().copy()

    first, second = run_ranks(2, work)

    assert (first == second).all()
