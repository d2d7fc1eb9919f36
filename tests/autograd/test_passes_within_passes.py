"""Custom Functions that run backward passes inside of their backward, nested several times."""

import sys
import threading

import pytest

import tenon
from tenon.autograd import Function


class CountDown(Function):
    """``x - 1``; its backward runs the backward of another countdown, until the value is below zero."""

    depth = 0

    @staticmethod
    def forward(ctx, x):
        with tenon.enable_grad():
            ctx.start = x.detach().requires_grad_()
            ctx.end = ctx.start - 1
        return ctx.end.detach()

    @staticmethod
    def backward(ctx, g):
        if ctx.end >= 0:
            CountDown.depth += 1
            with tenon.enable_grad():
                CountDown.apply(ctx.end).backward()
            assert ctx.start.grad.item() == 1 and not tenon.is_grad_enabled()
        return g


def count_down(start):
    CountDown.depth = 0
    x = tenon.tensor(float(start), requires_grad=True)
    CountDown.apply(x).backward()
    return x.grad.item(), CountDown.depth


def test_a_thousand_passes_fit_into_each_other():
    limit = sys.getrecursionlimit()

    assert count_down(1000) == (1.0, 1000)
    assert sys.getrecursionlimit() == limit


def test_so_they_do_in_another_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(count_down(300)))
    thread.start()
    thread.join()

    assert found == [(1.0, 300)]


def test_passes_that_never_end_are_a_recursion_error(monkeypatch):
    monkeypatch.setattr("tenon.engine.running_pass._LAST", 5000)
    limit = sys.getrecursionlimit()

    with pytest.raises(RecursionError):
        count_down(float("inf"))

    assert sys.getrecursionlimit() == limit
    assert count_down(3) == (1.0, 3)
