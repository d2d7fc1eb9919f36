"""Whole train steps, compiled: every optimizer, clipping, schedules, accumulation, and changes between calls."""

import copy

import pytest

import tenon
from tenon import nn, optim
from tenon.nn import functional as F
from tenon.optim import lr_scheduler as schedules

OPTIMIZERS = {
    "SGD": lambda p: optim.SGD(p, lr=0.1),
    "SGD momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "SGD nesterov": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "SGD maximize": lambda p: optim.SGD(p, lr=0.01, momentum=0.9, dampening=0.1, maximize=True),
    "Adam": lambda p: optim.Adam(p, lr=0.01),
    "Adam amsgrad": lambda p: optim.Adam(p, lr=0.01, amsgrad=True, weight_decay=0.1),
    "Adam capturable": lambda p: optim.Adam(p, lr=0.01, capturable=True),
    "Adam tensor rate": lambda p: optim.Adam(p, lr=tenon.tensor(0.01)),
    "AdamW": lambda p: optim.AdamW(p, lr=0.01, maximize=True),
    "RMSprop": lambda p: optim.RMSprop(p, lr=0.001, momentum=0.9, centered=True),
    "Adagrad": lambda p: optim.Adagrad(p, lr=0.01, lr_decay=0.1),
}


def training(twins, make, change=None, schedule=None, inside=True, clip=None, set_to_none=True, dropout=0.3):
    """``build`` of a train step; ``change(i, model, optimizer)`` runs before call ``i``."""

    def build():
        model = twins.mlp(dropout)
        optimizer = make(model.parameters())
        plan = schedule(optimizer) if schedule else None

        def step(x, y):
            optimizer.zero_grad(set_to_none=set_to_none)
            loss = F.mse_loss(model(x), y)
            loss.backward()
            if clip:
                clip(model.parameters())
            optimizer.step()
            if plan and inside:
                plan.step()
            return loss

        def arguments(i):
            if plan and not inside and i:
                plan.step()
            if change:
                change(i, model, optimizer)
            return twins.batch(i), twins.batch(i, 5, 3)

        return step, arguments, (model, optimizer)

    return build


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("SGD momentum", "AdamW") else pytest.mark.slow)
        for name in OPTIMIZERS
    ],
)
def test_a_compiled_step_is_the_eager_step(twins, name):
    twins.check(training(twins, OPTIMIZERS[name]))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SGD momentum", "AdamW"])
def test_losses_are_the_same_over_100_steps(twins, name):
    twins.check(training(twins, OPTIMIZERS[name]), calls=100, tolerance=1e-3)


def test_groups_keep_their_own_options(twins):
    def make(parameters):
        first, *rest = parameters
        return optim.Adam([{"params": [first], "lr": 0.1}, {"params": rest, "betas": (0.8, 0.9)}], lr=0.01)

    twins.check(training(twins, make))


@pytest.mark.parametrize(
    "clip", [lambda p: nn.utils.clip_grad_norm_(p, 0.1), lambda p: nn.utils.clip_grad_value_(p, 0.05)]
)
def test_clipping_is_part_of_the_program(twins, clip):
    twins.check(training(twins, OPTIMIZERS["Adam"], clip=clip))


SCHEDULES = {
    "step": lambda o: schedules.StepLR(o, 2),
    "one cycle": lambda o: schedules.OneCycleLR(o, 0.1, total_steps=50),
    "restarts": lambda o: schedules.CosineAnnealingWarmRestarts(o, 4),
    "sequence": lambda o: schedules.SequentialLR(
        o, [schedules.LinearLR(o), schedules.ExponentialLR(o, 0.9)], [4]
    ),
    "chain": lambda o: schedules.ChainedScheduler([schedules.LinearLR(o), schedules.ExponentialLR(o, 0.9)]),
}


@pytest.mark.parametrize(
    "name, schedule, inside",
    [
        *(("SGD momentum", each, True) for each in SCHEDULES),
        ("SGD momentum", "one cycle", False),
        ("Adam", "one cycle", True),
        ("Adam", "sequence", False),
        *(
            pytest.param("SGD momentum", each, False, marks=pytest.mark.slow)
            for each in SCHEDULES
            if each != "one cycle"
        ),
        pytest.param("Adam", "one cycle", False, marks=pytest.mark.slow),
        pytest.param("Adam", "sequence", True, marks=pytest.mark.slow),
    ],
)
def test_schedules_change_rates_without_a_new_recording(twins, name, schedule, inside):
    build = training(twins, OPTIMIZERS[name], schedule=SCHEDULES[schedule], inside=inside)

    twins.check(build, calls=10)


def test_a_rate_changed_by_hand_needs_no_new_recording(twins):
    def change(i, model, optimizer):
        optimizer.param_groups[0]["lr"] = 0.1 / (i + 1)

    twins.check(training(twins, OPTIMIZERS["SGD momentum"], change))


def test_a_path_of_the_rule_not_taken_before_is_recorded_anew(twins):
    def change(i, model, optimizer):
        if i == 5:
            optimizer.param_groups[0]["weight_decay"] = 0.1

    step = twins.check(training(twins, OPTIMIZERS["SGD"], change), calls=10, programs=2)

    assert any("weight_decay" in reason for reason in step.reasons)


def _freeze(i, model, optimizer):
    if i == 4:
        model[0].weight.requires_grad_(False)


def _evaluate(i, model, optimizer):
    if i == 4:
        model.eval()


def _load(i, model, optimizer):
    if i == 4:
        model.load_state_dict({name: value * 0.5 for name, value in model.state_dict().items()})


def _load_optimizer(i, model, optimizer):
    if i == 4:
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))


def _exchange_memory(i, model, optimizer):
    if i == 4:
        for p in model.parameters():
            p.data = p.data * 0.5


def _replace_layer(i, model, optimizer):
    if i == 4:
        model[1] = nn.ReLU()


def _hook(i, model, optimizer):
    if i == 4:
        model.handle = model[1].register_forward_hook(_double)
    if i == 8:
        model.handle.remove()


def _double(module, args, out):
    return out * 2


@pytest.mark.parametrize(
    "change, programs",
    [
        (_freeze, 2), (_evaluate, 2), (_load, 1), (_load_optimizer, 2), (_exchange_memory, 1),
        (_replace_layer, 2),
    ],
)  # fmt: skip
def test_what_changes_between_calls_is_seen(twins, change, programs):
    build = training(twins, OPTIMIZERS["SGD momentum"], change)

    twins.check(build, calls=10, programs=programs, tolerance=1e-4)


@pytest.mark.filterwarnings("ignore:tenon.compile. the ops of these hooks")
def test_hooks_that_come_and_go_are_seen(twins):
    build = training(twins, OPTIMIZERS["SGD momentum"], _hook)

    twins.check(build, calls=12, programs=2, tolerance=1e-4)


def test_a_group_added_later_is_updated(twins):
    def build():
        model, scale = twins.mlp(), nn.Parameter(tenon.ones(3))
        optimizer = optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

        def step(x):
            optimizer.zero_grad()
            (model(x) * scale).square().mean().backward()
            optimizer.step()

        def arguments(i):
            if i == 5:
                optimizer.add_param_group({"params": [scale], "lr": 0.02})
            return (twins.batch(i),)

        return step, arguments, (model, optimizer, scale)

    twins.check(build, calls=12, programs=2)


@pytest.mark.slow
def test_gradients_set_by_hand_are_added_to(twins):
    def build():
        model = twins.mlp()
        optimizer = optim.SGD(model.parameters(), lr=0.01)

        def step(x):
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

        def arguments(i):
            for p in model.parameters():
                if i in (4, 6):
                    p.grad = tenon.full_like(p, 0.1 * i)
                elif i == 7:
                    p.grad = None
            return (twins.batch(i),)

        return step, arguments, (model, optimizer)

    twins.check(build, calls=10, programs=None)


@pytest.mark.slow
@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("zero_inside", [True, False])
def test_accumulation_in_one_function_and_the_step_in_another(twins, set_to_none, zero_inside):
    def outcome(compiled):
        tenon.manual_seed(0)
        model = twins.mlp(0.3)
        optimizer = optim.Adam(model.parameters(), lr=0.01)

        def accumulate(x):
            loss = model(x).square().mean() / 3
            loss.backward()
            return loss

        def step():
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if zero_inside:
                optimizer.zero_grad(set_to_none=set_to_none)

        if compiled:
            accumulate, step = tenon.compile(accumulate), tenon.compile(step)
        trace = []
        for i in range(10):
            trace += [twins.seen(accumulate(twins.batch(3 * i + j)), model) for j in range(3)]
            step()
            if not zero_inside:
                optimizer.zero_grad(set_to_none=set_to_none)
            trace.append(twins.seen(model, optimizer))
        return trace, accumulate, step

    eager, *_ = outcome(False)
    ours, accumulate, step = outcome(True)

    for a, b in zip(ours, eager, strict=True):
        twins.assert_same(a, b)
    assert len(accumulate.programs) == (2 if set_to_none else 1), accumulate.reasons
    assert len(step.programs) == 1, step.reasons


def test_an_optimizer_step_alone(twins):
    def build():
        model = twins.mlp()
        optimizer = optim.Adam(model.parameters(), lr=0.01)

        def arguments(i):
            for p in model.parameters():
                p.grad = tenon.full_like(p, 0.1 * i)
            return ()

        return optimizer.step, arguments, (model, optimizer)

    twins.check(build)


def test_a_closure_and_its_loss(twins):
    def build():
        model = twins.mlp()
        optimizer = optim.SGD(model.parameters(), lr=0.01)

        def step(x):
            def closure():
                optimizer.zero_grad()
                loss = model(x).sum()
                loss.backward()
                return loss

            return optimizer.step(closure)

        return step, lambda i: (twins.batch(i),), (model, optimizer)

    twins.check(build)


@pytest.mark.slow
def test_two_steps_and_two_optimizers_in_one_function(twins):
    def build():
        model = twins.mlp()
        one, two = optim.Adam(model[0].parameters(), lr=0.01), optim.SGD(model[3].parameters(), lr=0.01)

        def step(x):
            for _ in range(2):
                one.zero_grad()
                two.zero_grad()
                model(x).square().mean().backward()
                one.step()
            two.step()

        return step, lambda i: (twins.batch(i),), (model, one, two)

    twins.check(build, tolerance=1e-4)


@pytest.mark.slow
def test_an_optimizer_with_a_step_of_its_own_sees_its_schedule(twins):
    class Momentum(optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})

        def step(self, closure=None):
            with tenon.no_grad():
                for group in self.param_groups:
                    for p in group["params"]:
                        held = self.state[p].setdefault("m", tenon.zeros_like(p))
                        held.mul_(0.9).add_(p.grad)
                        p.add_(held, alpha=-group["lr"])

    def build():
        model = twins.mlp()
        optimizer = Momentum(model.parameters(), 0.01)
        schedule = schedules.StepLR(optimizer, 6)

        def step(x):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

        def arguments(i):
            if i:
                schedule.step()
            return (twins.batch(i),)

        return step, arguments, (model, optimizer)

    twins.check(build, calls=12, programs=2)


def test_training_without_an_optimizer(twins):
    def build():
        model = twins.mlp()
        average = copy.deepcopy(model)

        def step(x):
            for p in model.parameters():
                if p.grad is not None:
                    p.grad.zero_()
            model(x).square().mean().backward()
            with tenon.no_grad():
                for p, a in zip(model.parameters(), average.parameters(), strict=True):
                    p -= 0.1 * p.grad
                    a.mul_(0.9).add_(p, alpha=0.1)

        return step, lambda i: (twins.batch(i),), (model, average)

    twins.check(build)


def test_saved_state_has_the_right_step_counts(twins):
    _, step = twins.run(training(twins, OPTIMIZERS["Adam"]), 0, False)
    build = training(twins, OPTIMIZERS["Adam"])
    tenon.manual_seed(0)
    step, arguments, (_, optimizer) = build()
    step = tenon.compile(step)

    for i in range(7):
        step(*arguments(i))

    assert {float(held["step"]) for held in optimizer.state_dict()["state"].values()} == {7.0}
