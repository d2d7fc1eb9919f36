"""Thirty steps of every schedule, in many settings, with tenon and with torch."""

from __future__ import annotations

import inspect
import re
import warnings

import pytest

import tenon
from tenon.optim import lr_scheduler

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.oracle, pytest.mark.together]


class Warm:
    """A callable with state, as a user's schedule function may be."""

    def __init__(self, start):
        self.start = start

    def __call__(self, step):
        return self.start / (step + 1)


CASES = {
    "lambda": ("LambdaLR", {"lr_lambda": lambda step: 0.9**step}),
    "lambda per group": ("LambdaLR", {"lr_lambda": [lambda step: 0.9**step, Warm(3.0)]}),
    "multiplicative": ("MultiplicativeLR", {"lr_lambda": lambda step: 0.9 + 0.01 * (step % 3)}),
    "step": ("StepLR", {"step_size": 4}),
    "step of one": ("StepLR", {"step_size": 1, "gamma": 0.9}),
    "milestones": ("MultiStepLR", {"milestones": [3, 3, 10, 29], "gamma": 0.5}),
    "constant": ("ConstantLR", {}),
    "constant factor": ("ConstantLR", {"factor": 0.2, "total_iters": 12}),
    "linear": ("LinearLR", {}),
    "linear down": ("LinearLR", {"start_factor": 1.0, "end_factor": 0.1, "total_iters": 20}),
    "exponential": ("ExponentialLR", {"gamma": 0.93}),
    "polynomial": ("PolynomialLR", {}),
    "polynomial cubed": ("PolynomialLR", {"total_iters": 25, "power": 3.0}),
    "cosine": ("CosineAnnealingLR", {"T_max": 7}),
    "cosine to a floor": ("CosineAnnealingLR", {"T_max": 30, "eta_min": 1e-3}),
    "restarts": ("CosineAnnealingWarmRestarts", {"T_0": 4}),
    "longer restarts": ("CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2, "eta_min": 1e-3}),
    "one cycle": ("OneCycleLR", {"max_lr": 1.0, "total_steps": 31}),
    "one cycle linear": (
        "OneCycleLR",
        {"max_lr": [1.0, 3.0], "epochs": 4, "steps_per_epoch": 8, "anneal_strategy": "linear"},
    ),
    "one cycle in three": (
        "OneCycleLR",
        {"max_lr": 1.0, "total_steps": 40, "three_phase": True, "pct_start": 0.2},
    ),
    "one cycle, fixed momentum": ("OneCycleLR", {"max_lr": 1.0, "total_steps": 31, "cycle_momentum": False}),
    "one cycle, own momenta": (
        "OneCycleLR",
        {"max_lr": 1.0, "total_steps": 31, "base_momentum": [0.5, 0.6], "max_momentum": 0.99},
    ),
    "triangles": ("CyclicLR", {"base_lr": 0.1, "max_lr": 1.0, "step_size_up": 5}),
    "triangles per group": (
        "CyclicLR",
        {"base_lr": [0.1, 0.2], "max_lr": [1.0, 2.0], "step_size_up": 3, "step_size_down": 8},
    ),
    "halving triangles": (
        "CyclicLR",
        {"base_lr": 0.1, "max_lr": 1.0, "step_size_up": 4, "mode": "triangular2"},
    ),
    "shrinking range": (
        "CyclicLR",
        {"base_lr": 0.1, "max_lr": 1.0, "step_size_up": 4, "mode": "exp_range", "gamma": 0.9},
    ),
    "own scale": (
        "CyclicLR",
        {"base_lr": 0.1, "max_lr": 1.0, "step_size_up": 4, "scale_fn": Warm(2.0), "scale_mode": "iterations"},
    ),
}
OPTIMIZERS = {"SGD": {"lr": 0.5, "momentum": 0.9}, "AdamW": {"lr": 0.02}}


def optimizer(framework, name):
    params = [framework.nn.Parameter(framework.ones(2)) for _ in range(2)]
    for p in params:
        p.grad = framework.ones(2)
    groups = [{"params": params[:1]}, {"params": params[1:], "lr": 0.3}]
    return getattr(framework.optim, name)(groups, **OPTIMIZERS[name])


def seen(optimizer):
    """What schedules may change."""
    return [
        [float(group[key]) for key in ("lr", "initial_lr", "momentum") if key in group]
        + [float(beta) for beta in group.get("betas", ())]
        for group in optimizer.param_groups
    ]


def both(name, options, optimizers):
    return [
        getattr(framework.optim.lr_scheduler, name)(one, **options)
        for framework, one in zip((tenon, torch), optimizers, strict=True)
    ]


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("case", CASES)
def test_thirty_steps_agree_with_torch(case, kind):
    name, options = CASES[case]
    optimizers = optimizer(tenon, kind), optimizer(torch, kind)
    ours, theirs = both(name, options, optimizers)

    for _ in range(30):
        compare(*optimizers)
        assert ours.last_epoch == theirs.last_epoch
        assert ours.get_last_lr() == pytest.approx(theirs.get_last_lr(), rel=1e-12)
        for one in (*optimizers, ours, theirs):
            one.step()


def compare(a, b):
    for mine, yours in zip(seen(a), seen(b), strict=True):
        assert mine == pytest.approx(yours, rel=1e-12, abs=1e-15)


def plain(value):
    """A state dict's values, without what names a framework or a function."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if k not in ("_scale_fn_ref",)}
    if isinstance(value, list):
        return [plain(v) for v in value]
    return value


@pytest.mark.parametrize("case", CASES)
def test_states_have_torchs_keys_and_values_and_move_between_them(case):
    name, options = CASES[case]
    optimizers = optimizer(tenon, "SGD"), optimizer(torch, "SGD")
    ours, theirs = both(name, options, optimizers)
    for _ in range(6):
        for one in (*optimizers, ours, theirs):
            one.step()

    mine, yours = plain(ours.state_dict()), plain(theirs.state_dict())

    assert mine.keys() == yours.keys()
    for key, value in yours.items():
        near = key in ("_last_lr", "base_lrs", "T_cur")
        assert mine[key] == (pytest.approx(value, rel=1e-12) if near else value), key

    fresh = optimizer(tenon, "SGD")
    resumed = getattr(lr_scheduler, name)(fresh, **options)
    resumed.load_state_dict(theirs.state_dict())
    fresh.load_state_dict(optimizers[0].state_dict())
    fresh.param_groups[0]["params"][0].grad = tenon.ones(2)
    for _ in range(5):
        for one in (optimizers[1], theirs, fresh, resumed):
            one.step()
        compare(fresh, optimizers[1])


JUMPING = [
    case
    for case, (name, _) in CASES.items()
    if "restarts" in case or hasattr(getattr(lr_scheduler, name), "_get_closed_form_lr")
]


@pytest.mark.parametrize("case", JUMPING)
def test_jumps_to_an_epoch_agree_with_torch(case):
    name, options = CASES[case]
    optimizers = optimizer(tenon, "SGD"), optimizer(torch, "SGD")
    ours, theirs = both(name, options, optimizers)

    for epoch in (5, 2, 20, 0, 9):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            ours.step(epoch)
            theirs.step(epoch)
        compare(*optimizers)
        assert ours.last_epoch == theirs.last_epoch


@pytest.mark.parametrize("case", CASES)
def test_schedules_resumed_in_the_middle_agree_with_torch(case):
    name, options = CASES[case]
    optimizers = optimizer(tenon, "SGD"), optimizer(torch, "SGD")
    first = both(name, options, optimizers)
    for _ in range(11):
        for one in (*optimizers, *first):
            one.step()

    ours, theirs = both(name, options | {"last_epoch": first[0].last_epoch}, optimizers)

    compare(*optimizers)
    for _ in range(5):
        for one in (*optimizers, ours, theirs):
            one.step()
        compare(*optimizers)


PLATEAU = [
    {},
    {"mode": "max"},
    {"patience": 0, "factor": 0.5},
    {"patience": 1, "cooldown": 2},
    {"threshold_mode": "abs", "threshold": 0.3, "patience": 2},
    {"patience": 0, "min_lr": [0.2, 0.05]},
    {"patience": 0, "min_lr": 0.1, "eps": 0.1},
    {"mode": "max", "threshold_mode": "abs", "patience": 1},
]


@pytest.mark.parametrize("options", PLATEAU, ids=str)
def test_plateau_agrees_with_torch_in_rates_and_attributes(options):
    optimizers = optimizer(tenon, "SGD"), optimizer(torch, "SGD")
    ours, theirs = both("ReduceLROnPlateau", options, optimizers)

    for metric in (3.0, 2.0, 2.0, 1.9999, 2.5, float("nan"), 1.0, 1.0, 0.8, 0.9, 1.2, 1.3, -2.0, -2.0, -2.1):
        ours.step(tenon.tensor(metric))
        theirs.step(torch.tensor(metric))
        compare(*optimizers)
        for name in vars(theirs):
            if name not in ("optimizer", "_last_lr"):
                assert getattr(ours, name) == getattr(theirs, name), name
        assert ours.in_cooldown == theirs.in_cooldown
    assert set(ours.state_dict()) == set(theirs.state_dict())


SEQUENCES = {
    "warm-up, then cosine": ([("LinearLR", {"total_iters": 4}), ("CosineAnnealingLR", {"T_max": 20})], [4]),
    "three": (
        [("ConstantLR", {"total_iters": 3}), ("ExponentialLR", {"gamma": 0.9}), ("StepLR", {"step_size": 3})],
        [3, 11],
    ),
    "from the second on": ([("ConstantLR", {}), ("ExponentialLR", {"gamma": 0.9})], [0]),
    "one": ([("ExponentialLR", {"gamma": 0.9})], []),
    "same milestone twice": (
        [("ConstantLR", {}), ("StepLR", {"step_size": 2}), ("ExponentialLR", {"gamma": 0.9})],
        [5, 5],
    ),
    "functions": (
        [("LambdaLR", {"lr_lambda": lambda s: s / 10}), ("MultiplicativeLR", {"lr_lambda": lambda s: 0.9})],
        [9],
    ),
    "restarts": ([("LinearLR", {}), ("CosineAnnealingWarmRestarts", {"T_0": 4})], [5]),
}


def composed(framework, case, one, name="SequentialLR"):
    parts, milestones = SEQUENCES[case]
    space = framework.optim.lr_scheduler
    made = [getattr(space, part)(one, **options) for part, options in parts]
    return (
        space.SequentialLR(one, made, milestones) if name == "SequentialLR" else space.ChainedScheduler(made)
    )


@pytest.mark.parametrize("name", ["SequentialLR", "ChainedScheduler"])
@pytest.mark.parametrize("case", SEQUENCES)
def test_schedules_of_schedules_agree_with_torch(case, name):
    optimizers = optimizer(tenon, "SGD"), optimizer(torch, "SGD")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        ours, theirs = composed(tenon, case, optimizers[0], name), composed(torch, case, optimizers[1], name)

        for step in range(30):
            compare(*optimizers)
            assert ours.get_last_lr() == pytest.approx(theirs.get_last_lr(), rel=1e-12)
            if step == 13:
                resumed = composed(tenon, case, optimizer(tenon, "SGD"), name)
                resumed.load_state_dict(theirs.state_dict())
                resumed.optimizer.load_state_dict(optimizers[0].state_dict())
                ours, optimizers = resumed, (resumed.optimizer, optimizers[1])
            for one in (*optimizers, ours, theirs):
                one.step()
    assert set(ours.state_dict()) == set(theirs.state_dict())


@pytest.mark.filterwarnings("ignore:Detected call of")  # of both: the inner one makes its first step twice
def test_a_sequence_inside_a_sequence_agrees_with_torch():
    optimizers = optimizer(tenon, "SGD"), optimizer(torch, "SGD")
    made = []
    for framework, one in zip((tenon, torch), optimizers, strict=True):
        space = framework.optim.lr_scheduler
        inner = space.SequentialLR(one, [space.ConstantLR(one), space.ExponentialLR(one, 0.9)], [3])
        made.append(space.SequentialLR(one, [inner, space.StepLR(one, 2)], [8]))

    for _ in range(15):
        compare(*optimizers)
        for one in (*optimizers, *made):
            one.step()


BAD = [
    ("StepLR", (), {}),
    ("LambdaLR", ([lambda s: 1],), {}),
    ("ConstantLR", (), {"factor": 1.5}),
    ("LinearLR", (), {"start_factor": 0}),
    ("LinearLR", (), {"end_factor": 2}),
    ("OneCycleLR", (1.0,), {}),
    ("OneCycleLR", (1.0,), {"total_steps": -3}),
    ("OneCycleLR", (1.0,), {"epochs": 0, "steps_per_epoch": 1}),
    ("OneCycleLR", (1.0,), {"total_steps": 5, "pct_start": 3.0}),
    ("OneCycleLR", (1.0,), {"total_steps": 5, "anneal_strategy": "x"}),
    ("OneCycleLR", ([1.0],), {"total_steps": 5}),
    ("CyclicLR", (0.1, 1.0), {"mode": "x"}),
    ("CyclicLR", ([0.1], 1.0), {}),
    ("CosineAnnealingWarmRestarts", (0,), {}),
    ("CosineAnnealingWarmRestarts", (2, 0), {}),
    ("CosineAnnealingWarmRestarts", (2, 1, "0"), {}),
    ("ReduceLROnPlateau", (), {"factor": 1.0}),
    ("ReduceLROnPlateau", ("x",), {}),
    ("ReduceLROnPlateau", (), {"threshold_mode": "x"}),
    ("ReduceLROnPlateau", (), {"min_lr": [0.1]}),
    ("SequentialLR", ([], []), {}),
    ("SequentialLR", ([object()], []), {}),
    ("ChainedScheduler", (), {}),
    ("MultiplicativeLR", (3,), {}),
]


@pytest.mark.parametrize(
    ("name", "args", "options"), BAD, ids=lambda v: re.sub(" at 0x[0-9a-f]+", "", str(v))[:40]
)
def test_bad_arguments_raise_what_torch_raises(name, args, options):
    errors = []
    for framework in (torch, tenon):
        first = [] if name == "ChainedScheduler" else optimizer(framework, "SGD")
        with pytest.raises((ValueError, TypeError)) as error:
            getattr(framework.optim.lr_scheduler, name)(first, *args, **options)
        errors.append(error)

    assert errors[1].type is errors[0].type
    if "missing" not in str(errors[0].value):
        assert str(errors[1].value) == str(errors[0].value)


def test_every_schedule_of_torch_is_there_with_its_signature():
    names = [n for n in torch.optim.lr_scheduler.__all__ if n != "LRScheduler"]

    for name in names:
        theirs, ours = getattr(torch.optim.lr_scheduler, name), getattr(lr_scheduler, name)
        facts = [
            [(p.name, p.default) for p in inspect.signature(cls).parameters.values()]
            for cls in (ours, theirs)
        ]
        assert facts[0] == facts[1], name
