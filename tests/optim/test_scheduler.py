"""The protocol of schedules: order of calls, warnings, tensors as rates, saving, users' own classes."""

from __future__ import annotations

import copy
import pickle

import pytest

import tenon
from tenon import nn
from tenon.errors import PluginNotFoundError
from tenon.optim import SGD, Adam, lr_scheduler
from tenon.optim.lr_scheduler import (
    ChainedScheduler,
    ConstantLR,
    CosineAnnealingLR,
    CyclicLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)


def make(cls=SGD, lr=1.0, groups=1, **options):
    params = [nn.Parameter(tenon.ones(2)) for _ in range(groups)]
    for p in params:
        p.grad = tenon.ones(2)
    return cls([{"params": [p]} for p in params], lr=lr, **options)


def rates(optimizer):
    return [group["lr"] for group in optimizer.param_groups]


class Quarter(LRScheduler):
    """As a user writes one for torch."""

    def get_lr(self):
        if self.last_epoch == 0:
            return [group["lr"] for group in self.optimizer.param_groups]
        return [group["lr"] / 4 for group in self.optimizer.param_groups]


def test_a_users_schedule_sets_every_group_at_each_step():
    optimizer = make(groups=2)
    optimizer.param_groups[1]["lr"] = 8.0
    schedule = Quarter(optimizer)

    assert schedule.get_last_lr() == [1.0, 8.0] == schedule.base_lrs
    optimizer.step()
    schedule.step()

    assert rates(optimizer) == schedule.get_last_lr() == [0.25, 2.0]
    assert schedule.last_epoch == 1
    assert [g["initial_lr"] for g in optimizer.param_groups] == [1.0, 8.0]


def test_a_schedule_without_get_lr_says_so():
    with pytest.raises(NotImplementedError, match="LRScheduler defines no get_lr"):
        LRScheduler(make())


def test_stepping_before_the_optimizer_warns_once():
    optimizer = make()
    schedule = StepLR(optimizer, 1)

    with pytest.warns(
        UserWarning, match=r"`lr_scheduler.step\(\)` before `optimizer.step\(\)`.*#how-to-adjust"
    ):
        schedule.step()
    schedule.step()


def test_steps_made_before_there_was_a_schedule_do_not_count():
    optimizer = make()
    optimizer.step()
    schedule = StepLR(optimizer, 1)

    with pytest.warns(UserWarning, match="before `optimizer.step"):
        schedule.step()


def test_the_right_order_warns_of_nothing_also_with_two_schedules():
    optimizer = make()
    first = StepLR(optimizer, 1)
    optimizer.step()
    second = StepLR(optimizer, 1)

    first.step()
    second.step()


def test_a_replaced_step_is_noticed():
    optimizer = make()
    schedule = StepLR(optimizer, 1)
    optimizer.step = lambda: None

    with pytest.warns(UserWarning, match="has been overridden after learning rate scheduler initialization"):
        schedule.step()


def test_asking_for_the_next_rate_outside_a_step_warns():
    schedule = StepLR(make(), 1)

    with pytest.warns(UserWarning, match="please use `get_last_lr"):
        schedule.get_lr()


def test_the_epoch_argument_warns_and_jumps():
    optimizer = make()
    schedule = ExponentialLR(optimizer, 0.5)
    optimizer.step()

    with pytest.warns(UserWarning, match="epoch parameter in `scheduler.step"):
        schedule.step(3)

    assert rates(optimizer) == [0.125]


def test_resuming_without_initial_rates_is_refused():
    with pytest.raises(KeyError, match="'initial_lr' is not specified in param_groups"):
        StepLR(make(), 1, last_epoch=3)
    with pytest.raises(TypeError, match="list is not an Optimizer"):
        StepLR([], 1)


@pytest.mark.parametrize(
    "kind",
    [
        lambda o: LambdaLR(o, lambda step: 0.5**step),
        lambda o: ExponentialLR(o, 0.5),
        lambda o: LinearLR(o),
        lambda o: CosineAnnealingLR(o, 5),
        lambda o: OneCycleLR(o, 2.0, total_steps=9, cycle_momentum=False),
        lambda o: CyclicLR(o, 0.1, 1.0, 3, cycle_momentum=False),
        lambda o: SequentialLR(o, [ConstantLR(o), StepLR(o, 2)], [3]),
        lambda o: ChainedScheduler([ConstantLR(o), ExponentialLR(o, 0.5)]),
    ],
)
def test_a_tensor_rate_is_changed_in_place_to_the_same_values(kind):
    rate = tenon.tensor(1.0, dtype=tenon.float64)
    with_tensor, with_number = make(lr=rate), make()
    first, second = kind(with_tensor), kind(with_number)

    for _ in range(6):
        assert with_tensor.param_groups[0]["lr"] is rate
        assert rate.item() == pytest.approx(with_number.param_groups[0]["lr"], rel=1e-12)
        assert float(first.get_last_lr()[0]) == pytest.approx(second.get_last_lr()[0], rel=1e-12)
        for one in (with_tensor, with_number, first, second):
            one.step()


def test_plateau_lowers_a_tensor_rate_in_place():
    rate = tenon.tensor(1.0)
    optimizer = make(lr=rate)
    schedule = ReduceLROnPlateau(optimizer, factor=0.5, patience=0)

    schedule.step(1.0)
    schedule.step(2.0)

    assert optimizer.param_groups[0]["lr"] is rate and rate.item() == 0.5
    assert schedule.get_last_lr()[0].item() == 0.5


def test_plateau_takes_up_groups_that_were_added_later():
    optimizer = make()
    schedule = ReduceLROnPlateau(optimizer, patience=0, min_lr=0.2)
    strict = ReduceLROnPlateau(optimizer, patience=0, min_lr=[0.2])
    optimizer.add_param_group({"params": [nn.Parameter(tenon.ones(1))]})

    schedule.step(1.0)
    schedule.step(1.0)

    assert rates(optimizer) == [0.2, 0.2]
    strict.step(1.0)
    with pytest.raises(RuntimeError, match="usually due to a new param group"):
        strict.step(1.0)


def test_one_cycle_refuses_to_go_on_after_its_end():
    optimizer = make(momentum=0.9)
    schedule = OneCycleLR(optimizer, 1.0, total_steps=3)
    for _ in range(3):
        optimizer.step()
        schedule.step()

    with pytest.raises(ValueError, match="Tried to step 4 times"):
        schedule.step()
    with pytest.raises(ValueError, match="must support momentum or beta1"):
        OneCycleLR(make(tenon.optim.Adagrad), 1.0, total_steps=3)


def test_betas_cycle_where_there_is_no_momentum():
    optimizer = make(Adam, groups=2)
    schedule = OneCycleLR(optimizer, 1.0, total_steps=10, base_momentum=0.5, max_momentum=[0.9, 0.8])
    seen = [[g["betas"] for g in optimizer.param_groups]]
    for _ in range(9):
        optimizer.step()
        schedule.step()
        seen.append([g["betas"] for g in optimizer.param_groups])

    assert seen[0] == [(0.9, 0.999), (0.8, 0.999)]
    assert min(first[0] for first, _ in seen) == pytest.approx(0.5)
    assert seen[-1][1][0] == pytest.approx(0.8)


def test_one_cycle_loads_states_that_hold_the_annealing_function():
    optimizer = make(momentum=0.9)
    saved = OneCycleLR(optimizer, 1.0, total_steps=5).state_dict()
    del saved["_anneal_func_type"]
    schedule = OneCycleLR(optimizer, 1.0, total_steps=5)
    del schedule._anneal_func_type

    schedule.load_state_dict(saved | {"anneal_func": OneCycleLR._annealing_linear})
    optimizer.step()
    schedule.step()

    straight = OneCycleLR(make(momentum=0.9), 1.0, total_steps=5, anneal_strategy="linear")
    straight.optimizer.step()
    straight.step()
    assert rates(optimizer) == rates(straight.optimizer)


def test_cyclic_takes_the_mode_that_was_saved_and_saves_no_function():
    other = CyclicLR(make(momentum=0.9), 0.1, 1.0, step_size_up=1, mode="exp_range", gamma=0.5)
    schedule = CyclicLR(make(momentum=0.9), 0.1, 1.0, step_size_up=1)
    schedule.load_state_dict(pickle.loads(pickle.dumps(other.state_dict())))

    assert "_scale_fn_ref" not in other.state_dict() and callable(schedule._scale_fn_ref)
    assert schedule.mode == "exp_range" and schedule.scale_fn(3) == other.scale_fn(3) == 0.125
    assert pickle.loads(pickle.dumps(schedule)).scale_fn(1) == 0.5


def test_saved_schedules_go_on_where_they_were():
    optimizer = make()
    schedule = SequentialLR(
        optimizer, [LinearLR(optimizer, total_iters=3), ExponentialLR(optimizer, 0.5)], [3]
    )
    for _ in range(4):
        optimizer.step()
        schedule.step()
    saved = pickle.loads(pickle.dumps((optimizer.state_dict(), schedule.state_dict())))

    other = make()
    resumed = SequentialLR(other, [LinearLR(other, total_iters=3), ExponentialLR(other, 0.5)], [3])
    other.load_state_dict(saved[0])
    resumed.load_state_dict(saved[1])
    for _ in range(3):
        for one in (optimizer, schedule, other, resumed):
            one.step()

    assert rates(other) == rates(optimizer) and resumed.last_epoch == schedule.last_epoch == 7
    assert set(saved[1]) == {"_schedulers", "_milestones", "_last_lr", "last_epoch"}
    with pytest.raises(ValueError, match="holds 2 schedulers, this SequentialLR has 1"):
        SequentialLR(other, [StepLR(other, 1)], []).load_state_dict(saved[1])


def test_loading_leaves_the_saved_dict_as_it_is():
    optimizer = make()
    schedule = LambdaLR(optimizer, lambda step: 1.0)
    saved = schedule.state_dict()
    keys = list(saved)

    schedule.load_state_dict(saved)

    assert list(saved) == keys and saved["lr_lambdas"] == [None]


def test_schedule_and_optimizer_are_copied_together():
    optimizer = make()
    schedule = StepLR(optimizer, 1, gamma=0.5)
    optimizer.step()

    twin = copy.deepcopy(schedule)
    twin.optimizer.step()
    twin.step()

    assert rates(twin.optimizer) == [0.5] and rates(optimizer) == [1.0]


def test_a_loaded_optimizer_keeps_the_schedules_hands_on_its_groups():
    optimizer = make()
    schedule = StepLR(optimizer, 1, gamma=0.5)
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.step()

    schedule.step()

    assert rates(optimizer) == [0.5]


def test_an_unknown_schedule_is_an_attribute_error_with_near_names():
    with pytest.raises(PluginNotFoundError, match="StepLR"):
        _ = lr_scheduler.StpLR
    assert not hasattr(lr_scheduler, "NothingLR")
    assert lr_scheduler._LRScheduler is LRScheduler
