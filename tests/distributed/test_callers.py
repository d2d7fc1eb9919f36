"""Names of tensors follow the callers of a function, whatever its frame keeps of the call before."""

import gc
import sys
import types
import weakref

import pytest

import tenon as torch
from tenon.distributed.communication.callers import Callers, ReadCallers
from tenon.distributed.messages import identity

REPEATS = 6
"""From the third call in a row on, nothing is read again that stands still."""


def collective(tensor, names):
    """In place of ``dist.all_reduce``: note the name of ``tensor``."""
    names.append(identity.name_of(tensor).shown)


def items(names):
    """What the names have in brackets, without repetitions in a row."""
    found = [name[name.index("(") + 1 : name.index(") at")] if ") at" in name else "" for name in names]
    return [each for number, each in enumerate(found) if found[max(0, number - 1)] != each or not number]


def repeated(action):
    for _ in range(REPEATS):
        action()


def test_variables_of_a_caller_are_read_again_once_it_has_gone_on():
    names, tensor = [], torch.ones(3)

    def make():
        return lambda: collective(tensor, names)

    def run(order):
        actions = {"a": make(), "b": make(), "c": make()}
        for name in order:
            action = actions[name]
            repeated(action)

    run("abacb")

    assert [each.replace("actions", "").strip("['] ") for each in items(names)] == list("abacb")
    assert len(names) == 5 * REPEATS


def test_an_item_is_looked_at_each_time_in_the_container_that_stands():
    names, tensor = [], torch.ones(3)
    everything = {"a": lambda: collective(tensor, names), "b": None}

    def call(action):
        for number in range(2 * REPEATS):
            if number == REPEATS:
                everything["a"], everything["b"] = None, everything["a"]
            action()

    def run(actions):
        for name in ("a",):
            action = actions[name]
            call(action)

    run(everything)

    assert items(names) == ["actions['a'], everything['a']", "actions['b'], everything['b']"]


def test_a_variable_that_another_function_assigns_is_read_each_time():
    names = []

    def inner(tensor):
        collective(tensor, names)

    def middle(tensor, change):
        for number in range(2 * REPEATS):
            if number == REPEATS:
                change()
            inner(tensor)

    def run(values):
        def change():
            nonlocal values
            values = values[::-1]

        for each in values[:1]:
            middle(each, change)

    run([torch.ones(3), torch.ones(3)])

    assert items(names) == ["values[0]", "values[1]"]


def test_what_was_read_of_one_variable_is_not_taken_for_another():
    names, other_names = [], []

    def first(tensor):
        collective(tensor, other_names)

    def second(tensor):
        collective(tensor, names)

    def middle(one, two):
        for _ in range(REPEATS):
            first(one)
            second(two)

    def run(values, others, chosen):
        for one in values:
            for two in chosen:
                middle(one, two)

    def start(lists):
        run(*lists)

    tensor = torch.ones(3)
    start([[torch.ones(3)], [tensor], [tensor]])
    start([[tensor], [torch.ones(3)], [tensor]])

    assert items(names) == ["two, chosen[0], others[0]", "one, two, chosen[0], values[0]"]


def test_a_function_that_is_called_from_two_places_in_turn_has_the_callers_of_each():
    names, tensor = [], torch.ones(3)

    def one():
        collective(tensor, names)

    def other():
        collective(tensor, names)

    def both():
        for _ in range(REPEATS):
            one()
            other()

    def here():
        both()

    def there():
        both()

    for _ in range(3):
        here()
        there()

    places = [name.split(", called at ")[2] for name in names]
    calls = [set(places[at : at + 2 * REPEATS]) for at in range(0, len(places), 2 * REPEATS)]
    assert len(calls) == 6 and all(len(each) == 1 for each in calls)
    assert calls[0::2] == [calls[0]] * 3 and calls[1::2] == [calls[1]] * 3 and calls[0] != calls[1]


def test_a_generator_that_goes_on_elsewhere_has_other_callers():
    names, tensor = [], torch.ones(3)

    def helper():
        collective(tensor, names)

    def generate():
        while True:
            helper()
            yield

    running = generate()

    def here():
        for _ in range(REPEATS):
            next(running)

    def there():
        for _ in range(REPEATS):
            next(running)

    here()
    there()

    places = [name.split(", called at ")[2] for name in names]
    assert len(set(places[:REPEATS])) == len(set(places[REPEATS:])) == 1
    assert places[0] != places[-1]


def test_frames_keep_callers_and_nothing_of_them_stays_when_the_function_returns():
    class Plain:
        pass

    kept, references = [], []

    def call(action):
        for _ in range(REPEATS):
            action()
        kept.append(type(sys._getframe().f_trace))

    def run():
        tensor = torch.ones(3)
        mark = Plain()
        actions = {"a": lambda: collective(tensor, []), "mark": mark}
        for name in ("a",):
            action = actions[name]
            call(action)
        references.append(weakref.ref(mark))

    gc.disable()
    try:
        run()
        alive = [reference() for reference in references]
    finally:
        gc.enable()

    assert kept == [ReadCallers]
    assert alive == [None]


@pytest.fixture
def tracing():
    """Removes the trace function of a test."""
    before = sys.gettrace()
    yield
    sys.settrace(before)


def test_a_trace_function_is_left_alone_and_sees_every_line(tracing):
    names, tensor, lines = [], torch.ones(3), []

    def trace(frame, event, arg):
        if frame.f_code is loop.__code__:
            lines.append(event)
        return trace

    def loop():
        for _ in range(REPEATS):
            helper()
        return sys._getframe().f_trace

    def helper():
        collective(tensor, names)

    found = []
    for function in (None, trace):
        sys.settrace(function)
        found.append(loop())
    sys.settrace(None)

    assert isinstance(found[0], Callers) and found[1] is trace
    assert lines.count("line") == 2 * REPEATS + 2
    assert len(set(names)) == 1


def test_tracing_may_begin_in_a_function_whose_frame_keeps_callers(tracing):
    names, tensor, events = [], torch.ones(3), []

    def trace(frame, event, arg):
        events.append((frame.f_code.co_name, event))
        return trace

    def helper():
        collective(tensor, names)

    def loop():
        sys.settrace(None)
        for _ in range(REPEATS):
            helper()
        keeps = sys._getframe().f_trace
        sys.settrace(trace)
        for _ in range(REPEATS):
            helper()
        sys.settrace(None)
        return keeps

    keeps = loop()

    assert isinstance(keeps, Callers)
    assert not keeps  # as ``bdb`` asks whether it may trace the function
    assert ("helper", "line") in events and ("loop", "line") not in events
    assert len(set(names)) == 2  # of two lines


def test_keys_are_told_apart_where_tensors_are_in_no_variable():
    names, numbers = [], {1: 1.0, 2: 2.0, "1": 3.0}

    def run():
        for _ in range(40):
            for key in (1, 2, "1", True):
                collective(torch.tensor(numbers[key]), names)

    run()

    assert [name.partition(" at ")[0] for name in names[-4:]] == [
        "a tensor (key = 1)",
        "a tensor (key = 2)",
        "a tensor (key = '1')",
        "a tensor",
    ]


def test_parameters_of_one_shape_are_named_in_any_order():
    names = []
    model = types.SimpleNamespace()

    def run(_):
        model.layers = torch.nn.Sequential(*(torch.nn.Linear(3, 3) for _ in range(3)))
        parameters = [each for name, each in model.layers.named_parameters() if "weight" in name]
        for each in parameters:
            each.grad = torch.ones(3, 3)
        for number in (0, 1, 2, 2, 0, 1, 1, 0, 2):
            collective(parameters[number], names)
            collective(parameters[number].grad, names)
        collective(torch.ones(3, 3), names)

    modules, identity.RECENT_MODULES.modules = identity.RECENT_MODULES.modules, weakref.WeakSet()
    try:
        run(None)
    finally:
        identity.RECENT_MODULES.modules = modules

    expected = [
        f"{what} {number}.weight"
        for number in (0, 1, 2, 2, 0, 1, 1, 0, 2)
        for what in ("the parameter", "the gradient of")
    ]
    assert [name.partition(" at ")[0] for name in names[:-1]] == expected
    assert names[-1].startswith("a tensor at")
