"""Values outside of its arguments that a compiled function reads may change between calls."""

import functools
import gc
import types
import warnings
from dataclasses import dataclass, field

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.errors import TenonWarning

RATE = 1.0
settings = types.ModuleType("settings")
settings.rate = 1.0


class Defaults:
    rate = 1.0

    def scaled(self, x):
        return x * 2


class Slotted:
    __slots__ = ("rate",)


@dataclass(eq=False)
class Options:
    rate: float = 1.0
    nested: dict = field(default_factory=lambda: {"a": {"rate": 1.0}})
    rates: list = field(default_factory=lambda: [1.0])
    tensor: tenon.Tensor = field(default_factory=lambda: tenon.ones(2))

    @property
    def twice(self):
        return self.rate * 2


class Scaling(nn.Module):
    """Reads its number through a method from an object, and a parameter."""

    def __init__(self, options):
        super().__init__()
        self.weight, self.options = nn.Parameter(tenon.ones(2)), options

    def scaled(self, x):
        return x * self.options.rate

    def forward(self, x):
        return self.scaled(x * self.weight)


def by_rate(x):
    return x * RATE


def adding(options):
    """A closure made by a factory."""
    return lambda x: x + options.rate


def change(options, function):
    """``function`` of a tensor and what changes ``options`` so that it gives something else."""
    return function, lambda: setattr(options, "rate", options.rate + 1)


def of_a_helper():
    def again():
        globals()["RATE"] += 1

    return (lambda x: by_rate(x) + 1), again


def of_a_nested_dictionary():
    options = Options()

    def again():
        options.nested["a"]["rate"] += 1

    return (lambda x: x * options.nested["a"]["rate"]), again


def of_a_list_that_grows():
    options = Options()
    return (lambda x: sum((x * rate for rate in options.rates), x)), lambda: options.rates.append(2.0)


def of_an_imported_module():
    return change(settings, lambda x: x * settings.rate)


def of_a_class():
    return change(Defaults, lambda x: x * Defaults.rate)


def of_the_class_of_an_object():
    made = Defaults()
    return change(Defaults, lambda x: x * made.rate)


def of_slots():
    slotted = Slotted()
    slotted.rate = 1.0
    return change(slotted, lambda x: x * slotted.rate)


def of_a_property():
    options = Options()
    return change(options, lambda x: x * options.twice)


def of_an_exchanged_tensor():
    options = Options()
    return (lambda x: x + options.tensor), lambda: setattr(options, "tensor", options.tensor + 1)


def of_an_object_in_a_module():
    options = Options()
    return change(options, Scaling(options))


def of_a_partial_argument():
    options = Options()
    return change(options, functools.partial(lambda options, x: x * options.rate, options))


def of_a_closure_in_a_list():
    options = Options()
    functions = [adding(options), by_rate]
    return change(options, lambda x: sum(function(x) for function in functions))


def of_an_exchanged_model():
    models = {"now": Scaling(Options())}
    return (lambda x: models["now"](x)), lambda: models.update(now=Scaling(Options(rate=7.0)))


def of_a_hook():
    options, layer = Options(), nn.Identity()
    layer.register_forward_hook(lambda module, args, out: out * options.rate)
    return change(options, lambda x: layer(x))


def of_an_array():
    array = np.ones(2, np.float32)
    return (lambda x: x * tenon.tensor(array)), lambda: np.add(array, 1, array)


def of_a_method():
    made = Defaults()

    def again():
        before = Defaults.scaled
        Defaults.scaled = lambda self, x: before(self, x) + 1

    return (lambda x: made.scaled(x)), again


def of_a_replaced_forward():
    layer, rates = nn.Linear(2, 2), iter((3.0, 4.0))

    def again():
        rate = next(rates)
        layer.forward = lambda x: x * rate

    return layer, again


PLACES = [value for name, value in list(globals().items()) if name.startswith("of_")]


@pytest.mark.filterwarnings("ignore:.*ops of these hooks")
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__[3:])
def test_a_value_changed_outside_is_seen(place, monkeypatch):
    monkeypatch.setitem(globals(), "RATE", 1.0)
    monkeypatch.setattr(settings, "rate", 1.0)
    monkeypatch.setattr(Defaults, "rate", 1.0)
    monkeypatch.setattr(Defaults, "scaled", Defaults.scaled)
    function, again = place()
    compiled = tenon.compile(function, fullgraph=True)

    for call in range(12):
        if call in (5, 9):
            again()
        x = tenon.full((2,), call + 1.0)
        np.testing.assert_array_equal(compiled(x).detach().numpy(), function(x).detach().numpy())

    assert compiled.programs
    assert any("recorded again" in reason for reason in compiled.reasons)


def test_an_exchanged_optimizer_is_the_one_that_steps():
    def build(compiled):
        tenon.manual_seed(0)
        model = nn.Linear(3, 2)
        trainer = types.SimpleNamespace(optimizer=tenon.optim.AdamW(model.parameters(), lr=0.1))

        def step(x):
            trainer.optimizer.zero_grad()
            model(x).square().mean().backward()
            trainer.optimizer.step()

        return model, trainer, tenon.compile(step, fullgraph=True) if compiled else step

    seen = []
    for model, trainer, step in map(build, (False, True)):
        for call in range(16):
            if call in (5, 10):
                trainer.optimizer = tenon.optim.SGD(model.parameters(), lr=0.1 * call)
            step(tenon.full((4, 3), call / 16))
        seen.append(model.weight.detach().numpy())

    np.testing.assert_allclose(seen[1], seen[0], atol=1e-5)


def test_a_number_that_mattered_late_is_seen():
    mode = 0

    @tenon.compile(fullgraph=True)
    def function(x):
        return x * (10 if mode == 5 else 1)

    found = []
    for call in range(16):
        mode = call // 2
        found.append(function(tenon.ones(1)).item())

    assert found == [10.0 if call // 2 == 5 else 1.0 for call in range(16)]


def test_what_changes_often_and_never_matters_is_named_and_left_alone():
    epoch = 0

    @tenon.compile(fullgraph=True)
    def function(x):
        return x if epoch < 0 else x + 1

    with pytest.warns(TenonWarning, match="the variable 'epoch' changed in many calls"):
        for call in range(30):
            epoch = call
            function(tenon.ones(1))

    assert sum("recorded again" in reason for reason in function.reasons) == 9


def test_python_state_that_the_function_changes_itself_is_named():
    calls = []

    @tenon.compile(fullgraph=True)
    def function(x):
        calls.append(1)
        return x + 1

    with pytest.warns(TenonWarning, match="changes an item of 'calls' itself"):
        for _ in range(6):
            function(tenon.ones(1))

    assert len(calls) == 3


def test_recording_leaves_a_profile_function_in_place():
    import cProfile
    import sys

    compiled = tenon.compile(lambda x: x * 2)
    noted = []
    sys.setprofile(lambda frame, event, arg: noted.append(event))
    try:
        for _ in range(4):
            compiled(tenon.ones(1))
        assert sys.getprofile() is not None
    finally:
        sys.setprofile(None)
    profile = cProfile.Profile()
    profile.enable()
    again = tenon.compile(lambda x: x * 3)
    for _ in range(4):
        again(tenon.ones(1))
    profile.disable()

    assert "call" in noted
    assert profile.getstats()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert again(tenon.ones(1)).item() == 3.0


def test_what_the_garbage_collector_calls_is_not_part_of_a_function():
    collected = []

    def count(phase, info):
        collected.append(phase)

    @tenon.compile(fullgraph=True)
    def function(x):
        gc.collect()
        return x + 1

    gc.callbacks.append(count)
    try:
        found = [function(tenon.ones(1)).item() for _ in range(6)]
    finally:
        gc.callbacks.remove(count)

    assert found == [2.0] * 6 and collected
    assert function.reasons == ["compiled 2 nodes"]
