"""What a Module costs besides its forward, as a ratio to torch in the same run."""

import timeit

import pytest

import tenon

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle


def module(t):
    class Same(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = t.nn.Parameter(t.ones(2))
            self.register_buffer("buffer", t.ones(2))
            self.child = t.nn.Module()

        def forward(self, x):
            return x

    return Same()


def ratio(statement, number=20000):
    """How many times longer torch takes; the frameworks take turns, the best of each counts."""
    ours, theirs = (timeit.Timer(statement, globals={"m": module(t)}) for t in (tenon, torch))
    rounds = [(ours.timeit(number), theirs.timeit(number)) for _ in range(7)]
    return min(theirs for _, theirs in rounds) / min(ours for ours, _ in rounds)


@pytest.mark.parametrize("attribute", ["weight", "buffer", "child"])
def test_reading_a_member_is_a_dict_hit(attribute):
    assert ratio(f"m.{attribute}") > 5  # measured: 23 to 31


def test_calling_a_module_without_hooks_is_cheap():
    assert ratio("m(1)") > 1.5  # measured: 3.3


def test_calling_a_module_whose_hooks_are_gone_is_not_slower():
    assert ratio("m._forward_hooks; m(1)") > 1  # measured: 1.6


def test_calling_a_module_with_a_forward_hook_is_not_slower():
    assert (
        ratio("if not m._forward_hooks: m.register_forward_hook(lambda *a: None)\nm(1)") > 1
    )  # measured: 2.2
