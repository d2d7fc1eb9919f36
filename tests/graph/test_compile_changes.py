"""Replacing, loading, freezing, converting or copying state between calls of a compiled function is detected."""

import copy
import functools
import pickle
from collections import defaultdict

import numpy as np
import pytest

import tenon
from tenon import nn, optim
from tenon.nn import functional as F


def training(twins, change, rows=lambda i: 5, dtype=lambda i: tenon.float32, model=None):
    """``build`` of a train step with Adam; ``change(i, model, optimizer)`` runs before call ``i``."""

    def build():
        net = model() if model else twins.mlp(0.3)
        optimizer = optim.Adam(net.parameters(), lr=0.01)

        def step(x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(net(x), y)
            loss.backward()
            optimizer.step()
            return loss

        def arguments(i):
            change(i, net, optimizer)
            made = twins.batch(i, rows(i), 4), twins.batch(i + 50, rows(i), 3)
            return tuple(each.to(dtype(i)) for each in made)

        return step, arguments, (net, optimizer)

    return build


def nothing(i, model, optimizer):
    """No change."""


def state_entries(i, model, optimizer):
    if i == 5:
        for p in model.parameters():
            optimizer.state[p]["exp_avg"] = tenon.zeros_like(p)


def state_of_one_parameter(i, model, optimizer):
    if i == 5:
        del optimizer.state[model[0].weight]


def all_state(i, model, optimizer):
    if i == 5:
        optimizer.state = defaultdict(dict)


def parameter_in_model_and_group(i, model, optimizer):
    if i == 5:
        new = nn.Parameter(model[0].weight.detach() * 2)
        del optimizer.state[model[0].weight]
        model[0].weight = new
        optimizer.param_groups[0]["params"][0] = new


def parameter_of_the_model_only(i, model, optimizer):
    if i == 5:
        model[0].weight = nn.Parameter(model[0].weight.detach() * 2)


def frozen_and_thawed(i, model, optimizer):
    if i == 4:
        model[0].weight.requires_grad_(False)
        model[0].weight.grad = None
    if i == 8:
        model[0].weight.requires_grad_(True)


def dropout_rate(i, model, optimizer):
    if i == 5:
        model[2].p = 0.6


@pytest.mark.parametrize(
    "change",
    [
        state_entries,
        all_state,
        parameter_of_the_model_only,
        dropout_rate,
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in (state_of_one_parameter, parameter_in_model_and_group, frozen_and_thawed)
        ),
    ],
)
def test_a_change_between_calls_is_seen(twins, change):
    step = twins.check(training(twins, change), calls=14, programs=None, tolerance=1e-4)

    assert any("recorded again" in reason for reason in step.reasons), step.reasons
    assert len(step.programs) >= 2, "the calls after the change should be compiled again"


@pytest.mark.slow
def test_models_converted_to_another_dtype_go_on(twins):
    def change(i, model, optimizer):
        if i == 6:
            model.to(tenon.float64)

    build = training(twins, change, dtype=lambda i: tenon.float64 if i >= 6 else tenon.float32)

    twins.check(build, calls=12, programs=2, tolerance=1e-4)


def test_state_saved_and_loaded_between_calls(twins):
    def change(i, model, optimizer):
        if i == 4:
            model.kept = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
        if i == 8:
            model.load_state_dict(model.kept[0])
            optimizer.load_state_dict(model.kept[1])

    twins.check(training(twins, change), calls=13, programs=None)


def test_a_last_smaller_batch_has_a_program_of_its_own(twins):
    twins.check(training(twins, nothing, rows=lambda i: 2 if i % 4 == 3 else 5), calls=16, programs=2)


def test_empty_batches_are_compiled_too(twins):
    def build():
        net = nn.Linear(4, 3)
        optimizer = optim.Adam(net.parameters(), lr=0.01)

        def step(x):
            optimizer.zero_grad()
            loss = net(x).relu().sum()
            loss.backward()
            optimizer.step()
            return loss

        return step, lambda i: (tenon.zeros(0, 4),), (net, optimizer)

    twins.check(build, fullgraph=True)


def test_exchanged_buffers_are_read():
    norm = nn.BatchNorm1d(3).eval()
    compiled = tenon.compile(norm, fullgraph=True)
    x = tenon.randn(4, 3)
    for i in range(10):
        if i == 5:
            norm.running_mean = tenon.full((3,), 2.0)
        np.testing.assert_allclose(compiled(x).detach().numpy(), norm(x).detach().numpy(), rtol=1e-6)

    assert any("'running_mean'" in reason or "buffer" in reason for reason in compiled.reasons)


def test_an_attribute_that_does_not_matter_costs_one_recording():
    model = nn.Linear(2, 2)
    compiled = tenon.compile(model, fullgraph=True)
    for epoch in range(30):
        model.epoch = epoch
        compiled(tenon.ones(1, 2))

    assert compiled.reasons[-1] == "the change has no effect on the program"
    assert sum("recorded again" in reason for reason in compiled.reasons) == 1


RATE = 2.0


def test_a_changed_global_or_enclosed_variable_is_seen(monkeypatch):
    offset, unused = 1.0, 0

    @tenon.compile(fullgraph=True)
    def function(x):
        return x * RATE + (offset if unused >= 0 else 0.0)

    found = []
    for i in range(12):
        if i == 4:
            monkeypatch.setitem(globals(), "RATE", 3.0)
        offset = 5.0 if i >= 8 else 1.0
        unused = i
        found.append(function(tenon.ones(1)).item())

    assert found == [3.0] * 4 + [4.0] * 4 + [8.0] * 4
    assert any("the variable 'RATE'" in reason for reason in function.reasons)


class Scaled:
    def __init__(self):
        self.rate = 2.0

    def __call__(self, x):
        return x * self.rate


def test_attributes_and_items_that_the_function_mentions_are_seen():
    scaled, options = Scaled(), {"shift": 0.5}
    way = functools.partial(lambda add, x: scaled.rate * x + options["shift"] + add, 10.0)
    for function in [scaled, way]:
        scaled.rate, options["shift"] = 2.0, 0.5
        compiled = tenon.compile(function, fullgraph=True)
        found, expected = [], []
        for i in range(12):
            scaled.rate = 3.0 if i >= 5 else 2.0
            options["shift"] = 0.25 if i >= 9 else 0.5
            found.append(compiled(tenon.ones(1)).item())
            expected.append(function(tenon.ones(1)).item())

        assert found == expected
        assert any("rate" in reason for reason in compiled.reasons)
        assert compiled.programs


def test_modules_used_without_a_call_are_guarded():
    model = nn.Linear(2, 1, bias=False)

    @tenon.compile(fullgraph=True)
    def function(x):
        return x @ model.weight.T

    for i in range(10):
        if i == 5:
            model.weight = nn.Parameter(tenon.ones(1, 2))
        x = tenon.ones(1, 2)
        assert function(x).item() == pytest.approx((x @ model.weight.T).item())


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
@pytest.mark.parametrize("in_place", [True, False])
def test_copies_of_a_compiled_module_are_compiled_and_apart(duplicate, in_place):
    model = nn.Sequential(nn.Linear(3, 2))
    if in_place:
        model.compile()
        compiled = model
    else:
        compiled = tenon.compile(model)
    x = tenon.randn(4, 3)
    for _ in range(5):
        before = compiled(x)

    other = duplicate(compiled)
    with tenon.no_grad():
        for p in other.parameters():
            p.zero_()
    for _ in range(5):
        empty = other(x)

    assert empty.abs().sum().item() == 0
    assert tenon.equal(compiled(x), before)
    assert in_place or other.programs


@pytest.mark.parametrize(
    "draw",
    [lambda x, i: F.dropout(x, i / 20), lambda x, i: x + tenon.randn(3, generator=tenon.manual_seed(i)),
     lambda x, i: x * tenon.randint(0, i + 1, (3,))],
    ids=["rate", "seed", "bound"],
)  # fmt: skip
def test_rates_and_seeds_that_python_changes_are_found(draw):
    calls = [0]

    def function(x):
        calls[0] += 1
        return draw(x, calls[0])

    compiled, found = tenon.compile(function), []
    with pytest.warns(UserWarning, match="changes from call to call"):
        for run in (function, compiled):
            calls[0] = 0
            tenon.manual_seed(0)
            found.append([run(tenon.ones(3)).tolist() for _ in range(10)])

    assert found[0] == found[1]


def test_hooks_on_parameters_that_come_and_go_are_seen():
    weight = nn.Parameter(tenon.ones(3))

    @tenon.compile(fullgraph=True)
    def function(x):
        weight.grad = None
        (x * weight).sum().backward()

    def gradient(calls=5):
        for _ in range(calls):
            function(tenon.ones(3))
        return weight.grad[0].item()

    assert gradient() == 1
    with pytest.warns(UserWarning, match="these hooks are part of the program"):
        handle = weight.register_hook(lambda grad: grad * 2)
        assert gradient(1) == 2
        assert gradient() == 2
    handle.remove()
    assert gradient(1) == 1

    def three_times(leaf):
        leaf.grad.mul_(3)

    weight.register_post_accumulate_grad_hook(three_times)
    assert gradient(1) == 3
    assert gradient() == 3


@pytest.mark.parametrize("everywhere", [False, True], ids=["of one", "of all"])
def test_hooks_of_an_optimizer_that_come_and_go_are_seen(everywhere):
    weight = nn.Parameter(tenon.zeros(1))
    optimizer = optim.SGD([weight], lr=1.0)
    weight.grad = tenon.ones(1)
    step = tenon.compile(optimizer.step, fullgraph=True)

    def moved(calls=5):
        for _ in range(calls):
            before = weight.item()
            step()
        return before - weight.item()

    assert moved() == 1
    with pytest.warns(UserWarning, match="these hooks are part of the program"):
        register = (
            optim.optimizer.register_optimizer_step_post_hook
            if everywhere
            else optimizer.register_step_post_hook
        )
        handle = register(lambda *given: weight.data.sub_(1.0))
        assert moved(1) == 2
        assert moved() == 2
    handle.remove()
    assert moved(1) == 1
