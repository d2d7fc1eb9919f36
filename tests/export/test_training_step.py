"""Capture of a training step: forward, backward and optimizer, equal to eager over ten steps."""

import math
from typing import ClassVar

import pytest

import tenon
from tenon import nn
from tenon.errors import CaptureError
from tenon.export import Runner, capture
from tenon.nn import functional as F
from tenon.testing.suites.target_models import Digits


def setup(optimizer="Adam", **options):
    tenon.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    return model, getattr(tenon.optim, optimizer)(model.parameters(), **options)


def step_of(model, optimizer):
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def batches(count=10, *shape):
    return [(tenon.randn(4, *(shape or (6,))), tenon.randint(0, 3, (4,))) for _ in range(count)]


def assert_same_steps(graph, step, model, optimizer, steps, before=lambda i: None):
    runner = Runner(graph)
    for i, (x, y) in enumerate(steps):
        rate = before(i)
        if rate is not None:
            runner.scalars["optimizer.lr"] = optimizer.param_groups[0]["lr"] = rate
        assert runner(x, y).item() == pytest.approx(step(x, y).item(), abs=1e-6)
    for name, value in model.state_dict().items():
        if name in runner.state:
            assert runner.state[name] == pytest.approx(value.numpy(), rel=1e-5, abs=1e-6), name


CASES = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-3}),
    ("Adam", {"lr": 0.01}),
    ("Adam", {"lr": 0.01, "amsgrad": True}),
    ("AdamW", {"lr": 0.01, "weight_decay": 0.1}),
    ("RMSprop", {"lr": 0.01, "momentum": 0.5, "centered": True}),
    ("Adagrad", {"lr": 0.1, "initial_accumulator_value": 0.3}),
    ("Adadelta", {}),
    ("Adamax", {"lr": 0.01}),
    ("NAdam", {"lr": 0.01}),
    ("ASGD", {"lr": 0.1, "t0": 3}),
    ("Rprop", {"lr": 0.01}),
]
SLOW = [
    ("ASGD", {"lr": 0.1, "weight_decay": 0.1}),
    ("RAdam", {"lr": 0.01}),
    ("RAdam", {"lr": 0.01, "betas": (0.9, 0.6)}),
]
MARKED = [*CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)]


@pytest.mark.parametrize(
    ("name", "options"), MARKED, ids=[f"{n}{i}" for i, (n, _) in enumerate([*CASES, *SLOW])]
)
def test_ten_steps_equal_those_of_eager(name, options):
    model, optimizer = setup(name, **options)
    step = step_of(model, optimizer)
    steps = batches()

    graph = capture(step, *steps[0], train=True)

    assert_same_steps(graph, step, model, optimizer, steps, lambda i: 0.05 / (i + 1))


def test_a_step_goes_on_from_an_optimizer_that_has_made_steps():
    model, optimizer = setup("Adam", lr=0.01)
    step = step_of(model, optimizer)
    steps = batches(13)
    for batch in steps[:3]:
        step(*batch)

    graph = capture(step, *steps[0], train=True)

    assert [s.value for s in graph.signature.scalars if s.name == "optimizer.step"] == [4.0]
    assert_same_steps(graph, step, model, optimizer, steps[3:])


def test_a_convolutional_net_with_batch_norm():
    tenon.manual_seed(0)
    model = Digits()
    model.classifier[1].p = 0.0
    optimizer = tenon.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    step = step_of(model, optimizer)
    steps = batches(10, 1, 8, 8)

    graph = capture(step, *steps[0], train=True)

    assert_same_steps(graph, step, model, optimizer, steps)


def test_capture_leaves_model_gradients_and_optimizer_as_they_were():
    model, optimizer = setup("Adam", lr=0.01)
    before = {name: value.clone() for name, value in model.state_dict().items()}

    capture(step_of(model, optimizer), *batches(1)[0], train=True)

    assert all(tenon.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [p.grad for p in model.parameters()] == [None] * 4
    assert not optimizer.state


def test_inputs_are_named_and_have_kinds():
    model, optimizer = setup("Adam", lr=0.01)

    graph = capture(step_of(model, optimizer), *batches(1)[0], train=True)

    assert graph.signature.inputs == ["x", "y"]
    kinds = graph.signature.states
    assert kinds["0.weight"] == "parameter" and kinds["optimizer.0.weight.exp_avg"] == "optimizer"
    assert {write.target.label for write in graph.writes} == set(kinds)
    scalars = {scalar.name: (scalar.value, scalar.increment) for scalar in graph.signature.scalars}
    assert scalars == {
        "optimizer.lr": (0.01, 0.0), "optimizer.betas.0": (0.9, 0.0), "optimizer.betas.1": (0.999, 0.0),
        "optimizer.eps": (1e-8, 0.0), "optimizer.step": (1.0, 1.0),
    }  # fmt: skip
    assert {node.phase for node in graph.calls} == {"", "backward", "optimizer"}


def test_groups_and_several_optimizers_are_distinguished():
    one, two = nn.Linear(2, 2), nn.Linear(2, 1)
    first = tenon.optim.SGD([{"params": [one.weight]}, {"params": [one.bias], "lr": 0.5}], lr=0.1)
    second = tenon.optim.Adam(two.parameters(), lr=0.2)

    def step(x):
        first.zero_grad()
        second.zero_grad()
        two(one(x)).sum().backward()
        first.step()
        second.step()

    names = {s.name: s.value for s in capture(step, tenon.ones(3, 2), train=True).signature.scalars}

    assert names["optimizer.groups.0.lr"] == 0.1 and names["optimizer.groups.1.lr"] == 0.5
    assert names["optimizer1.lr"] == 0.2


def test_gradients_that_accumulate_over_steps_are_refused():
    model, _ = setup("SGD", lr=0.1)

    def step(x, y):
        F.cross_entropy(model(x), y).backward()

    with pytest.raises(CaptureError, match="zero_grad"):
        capture(step, *batches(1)[0], train=True)


def test_gradients_that_are_filled_with_zeros_are_state():
    model, optimizer = setup("SGD", lr=0.1)
    steps = batches()

    def step(x, y):
        optimizer.zero_grad(set_to_none=False)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    step(*steps[0])
    graph = capture(step, *steps[0], train=True)

    assert_same_steps(graph, step, model, optimizer, steps)


def test_gradient_clipping_is_part_of_the_step():
    model, optimizer = setup("SGD", lr=0.5)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        return loss

    steps = batches()
    assert_same_steps(capture(step, *steps[0], train=True), step, model, optimizer, steps)


def test_a_first_step_unlike_the_others_is_refused_until_it_is_made():
    model, optimizer = setup("SGD", lr=0.1, momentum=0.9, dampening=0.5)
    step = step_of(model, optimizer)
    steps = batches()

    with pytest.raises(CaptureError, match="Make one step before the capture"):
        capture(step, *steps[0], train=True)
    assert not optimizer.state

    step(*steps[0])
    assert_same_steps(capture(step, *steps[0], train=True), step, model, optimizer, steps)


def test_a_schedule_inside_the_step_is_refused():
    model, optimizer = setup("SGD", lr=0.1)
    schedule = tenon.optim.lr_scheduler.StepLR(optimizer, 2)
    inner = step_of(model, optimizer)

    def step(x, y):
        loss = inner(x, y)
        schedule.step()
        return loss

    with pytest.raises(CaptureError, match=r"scheduler steps in the captured function.*outside"):
        capture(step, *batches(1)[0], train=True)


def test_options_that_python_decided_by_are_guards():
    model, optimizer = setup("SGD", lr=0.1, momentum=0.9)
    graph = capture(step_of(model, optimizer), *batches(1)[0], train=True)
    runner = Runner(graph)

    runner.scalars["optimizer.momentum"] = 0.0

    with pytest.raises(CaptureError, match="it was True when the function was captured and is False now"):
        runner(*batches(1)[0])


class Warming(tenon.optim.Optimizer):
    """Makes smaller steps until the fourth."""

    defaults: ClassVar = {"lr": 0.01}

    def init(self, f, p):
        return {}

    def update(self, f, p, g, s, h):
        return p - (h.lr if h.step > 3 else 0.1 * h.lr) * g, {}


def test_a_rule_that_branches_on_the_step_holds_as_far_as_its_guard():
    model, _ = setup()
    optimizer = Warming(model.parameters())
    step = step_of(model, optimizer)
    steps = batches()
    runner = Runner(capture(step, *steps[0], train=True))

    with pytest.raises(CaptureError, match="the graph does not hold"):
        for x, y in steps:
            assert runner(x, y).item() == pytest.approx(step(x, y).item(), abs=1e-6)


def test_the_number_of_parameters_without_gradients_does_not_matter():
    model, optimizer = setup("Adam", lr=0.01)
    model[0].bias.requires_grad_(False)
    step = step_of(model, optimizer)
    steps = batches()

    graph = capture(step, *steps[0], train=True)

    assert "optimizer.0.bias.exp_avg" not in graph.signature.states
    assert_same_steps(graph, step, model, optimizer, steps)


@pytest.mark.parametrize("dtype", [tenon.float32, tenon.bfloat16])
@pytest.mark.parametrize("base", [3.0, 0.0])
def test_a_step_trains_the_exponent_of_a_number(base, dtype):
    exponent = tenon.tensor([0.5, 2.0], dtype=dtype, requires_grad=True)
    optimizer = tenon.optim.SGD([exponent], lr=0.125)

    def step(x):
        optimizer.zero_grad()
        (base**exponent * x).sum().backward()
        optimizer.step()

    x = tenon.ones(2, dtype=dtype)
    runner = Runner(capture(step, x, train=True))
    runner(x)

    slopes = [base**e * math.log(base or 1) for e in (0.5, 2.0)]
    expected = [e - 0.125 * slope for e, slope in zip((0.5, 2.0), slopes, strict=True)]
    assert runner.state["exponent"].tolist() == pytest.approx(
        expected, rel=1e-2 if dtype.itemsize == 2 else 1e-6
    )
