"""Calling a module: the path of errors, scopes, and what a call costs."""

import dataclasses
import pickle
import threading

import pytest

import tenon
from tenon import nn
from tenon.nn import call_listeners


class Double(nn.Module):
    def forward(self, x):
        return x * 2


class Fails(nn.Module):
    def forward(self, x):
        raise ValueError("inner trouble")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Double(), Fails()])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(Double(), Block())

    def forward(self, x):
        return self.encoder(x)


def test_a_module_without_forward_says_so():
    with pytest.raises(NotImplementedError, match=r'Module \[ModuleDict\] is missing the required "forward"'):
        nn.ModuleDict()(1)


def test_an_error_carries_the_path_of_the_innermost_module():
    with pytest.raises(ValueError, match=r"inner trouble") as caught:
        Net()(tenon.ones(1))

    assert caught.value.tenon_module_path == "encoder.1.layers.1"
    assert caught.value.__notes__ == ["in module encoder.1.layers.1 (Fails)"]


def test_an_error_in_the_outermost_module_names_its_class():
    with pytest.raises(ValueError) as caught:
        Fails()(1)

    assert caught.value.tenon_module_path == ""
    assert caught.value.__notes__ == ["in module Fails"]


def test_an_error_under_a_hook_or_a_scope_carries_the_same_path():
    net = Net()
    net.encoder.register_forward_hook(lambda *args: None)

    with pytest.raises(ValueError) as caught:
        net(tenon.ones(1))

    assert caught.value.tenon_module_path == "encoder.1.layers.1"


def test_an_error_in_an_unregistered_module_still_says_where_it_was_called():
    hidden = Fails()

    class Outer(nn.Module):
        def forward(self, x):
            return hidden(x)

    with pytest.raises(ValueError) as caught:
        nn.Sequential(Outer())(1)

    assert caught.value.tenon_module_path == "0.<Fails>"


def test_a_caught_error_leaves_no_trace_on_the_next_one():
    class Retries(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = Fails()
            self.b = Fails()

        def forward(self, x):
            try:
                self.a(x)
            except ValueError:
                return self.b(x)

    with pytest.raises(ValueError) as caught:
        Retries()(1)

    assert caught.value.tenon_module_path == "b"
    assert caught.value.__notes__ == ["in module b (Fails)"]


def test_an_exception_that_takes_no_attributes_comes_out_unchanged():
    @dataclasses.dataclass(frozen=True)
    class Frozen(Exception):
        value: int = 3

    module = nn.Module()

    def forward():
        raise Frozen()

    module.forward = forward
    with pytest.raises(Frozen):
        module()


def test_an_error_can_still_be_pickled_and_keeps_its_path():
    with pytest.raises(ValueError) as caught:
        Net()(tenon.ones(1))

    again = pickle.loads(pickle.dumps(caught.value))

    assert again.tenon_module_path == "encoder.1.layers.1"
    assert again.__notes__ == ["in module encoder.1.layers.1 (Fails)"]


def test_recursion_through_the_same_module_keeps_the_path():
    class Loops(nn.Module):
        def forward(self, depth):
            return self(depth - 1) if depth else 1 / 0

    with pytest.raises(ZeroDivisionError) as caught:
        nn.Sequential(Loops())(3)

    assert caught.value.tenon_module_path == "0"


class Recorder:
    def __init__(self):
        self.seen = []

    def enter(self, path, module):
        self.seen.append(("enter", path, type(module).__name__))

    def leave(self, path, module):
        self.seen.append(("leave", path))


@pytest.fixture
def recorder():
    recorder = Recorder()
    call_listeners.listen(recorder)
    yield recorder
    call_listeners.unlisten(recorder)


def test_nobody_listening_costs_nothing():
    assert call_listeners.active is None


def test_scopes_report_paths_of_the_outermost_module(recorder):
    nn.Sequential(Double(), nn.Sequential(Double()))(tenon.ones(1))

    assert recorder.seen == [
        ("enter", "", "Sequential"),
        ("enter", "0", "Double"),
        ("leave", "0"),
        ("enter", "1", "Sequential"),
        ("enter", "1.0", "Double"),
        ("leave", "1.0"),
        ("leave", "1"),
        ("leave", ""),
    ]


def test_scopes_are_balanced_after_an_error(recorder):
    with pytest.raises(ValueError):
        Net()(tenon.ones(1))

    entered = [path for kind, path, *_ in recorder.seen if kind == "enter"]
    assert entered == ["", "encoder", "encoder.0", "encoder.1", "encoder.1.layers.0", "encoder.1.layers.1"]
    assert sum(kind == "enter" for kind, *_ in recorder.seen) == sum(k == "leave" for k, *_ in recorder.seen)
    assert call_listeners.active._running.stack == []


def test_a_changed_tree_changes_the_paths(recorder):
    net = nn.Sequential(Double())
    net(tenon.ones(1))
    net.insert(0, nn.Sequential())
    recorder.seen.clear()

    net(tenon.ones(1))

    assert [entry[1] for entry in recorder.seen if entry[0] == "enter"] == ["", "0", "1"]


def test_an_unregistered_module_gets_a_name_in_brackets(recorder):
    hidden = Double()

    class Outer(nn.Module):
        def forward(self, x):
            return hidden(x)

    nn.Sequential(Outer())(tenon.ones(1))

    assert [entry[1] for entry in recorder.seen if entry[0] == "enter"] == ["", "0", "0.<Double>"]


def test_scopes_of_threads_do_not_mix(recorder):
    other = threading.Thread(target=lambda: nn.Sequential(Double())(tenon.ones(1)))

    class Starts(nn.Module):
        def forward(self, x):
            other.start()
            other.join()
            return x

    nn.Sequential(Starts())(tenon.ones(1))

    assert [entry[1] for entry in recorder.seen if entry[0] == "enter"] == ["", "0", "", "0"]


def test_unlistening_twice_is_an_error():
    with pytest.raises(ValueError, match=r"not listening"):
        call_listeners.unlisten(Recorder())


def test_a_gradient_error_names_the_module(recorder):
    class Saves(nn.Module):
        def forward(self, x):
            return (x * 2).exp()

    x = tenon.ones(2, requires_grad=True)
    net = nn.Sequential(Saves())
    y = net(x)
    y.add_(1)

    with pytest.raises(RuntimeError, match=r"modified by an inplace operation.*in module 0"):
        y.sum().backward()
