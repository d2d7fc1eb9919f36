"""Checkpointing gives the gradients of a plain call, in less memory, however the graph is used."""

import contextlib
import gc
import importlib
import tracemalloc
import weakref

import pytest

import tenon
from tenon import nn
from tenon.utils.checkpoint import (
    CheckpointError,
    GraphExecGroup,
    checkpoint,
    checkpoint_sequential,
    set_checkpoint_debug_enabled,
    set_checkpoint_early_stop,
)

OTHER_SHAPE = """import tenon
runs = []

def other_shape_next_time(x):
    runs.append(x)
    return (x * tenon.ones(len(runs))).sin()
"""


class Block(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 4 * width)
        self.back = nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.2)

    def forward(self, x):
        return x + self.drop(self.back(nn.functional.gelu(self.wide(self.norm(x)))))


def plain(net, x):
    return net(x)


def older(net, x):
    for block in net:
        x = checkpoint(block, x, use_reentrant=True)
    return x


def each(net, x):
    for block in net:
        x = checkpoint(block, x, use_reentrant=False)
    return x


def nested(net, x):
    def several(x, blocks):
        for block in blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x

    blocks = list(net)
    for first in range(0, len(blocks), 3):
        x = checkpoint(several, x, blocks=blocks[first : first + 3], use_reentrant=False)
    return x


def older_in_newer(net, x):
    return checkpoint(older, net, x, use_reentrant=False)


def in_segments(net, x):
    return checkpoint_sequential(net, 3, x, use_reentrant=False)


WAYS = [older, each, nested, older_in_newer, in_segments]


def gradients(way, count=6, rows=4, width=16, memory=False):
    """Gradients of a small network, and the most bytes that were alive."""
    tenon.manual_seed(0)
    net = nn.Sequential(*(Block(width) for _ in range(count)))
    x = tenon.randn(rows, width, requires_grad=True)
    gc.collect()
    if memory:
        tracemalloc.start()
    way(net, x).square().mean().backward()
    peak = tracemalloc.get_traced_memory()[1] if memory else 0
    if memory:
        tracemalloc.stop()
    return [p.grad for p in net.parameters()] + [x.grad], peak


@pytest.mark.parametrize("way", WAYS, ids=lambda w: w.__name__)
def test_gradients_are_a_plain_calls_to_the_bit(way):
    expected, _ = gradients(plain)
    found, _ = gradients(way)

    assert all(tenon.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("way", [older, each, nested], ids=lambda w: w.__name__)
def test_activations_are_not_kept(way):
    sizes = {"count": 12, "rows": 256, "width": 32}
    for first in (plain, way):
        gradients(first, **sizes)  # compiling kernels takes memory of its own

    _, whole = gradients(plain, **sizes, memory=True)
    _, less = gradients(way, **sizes, memory=True)

    assert less < whole / 3


def test_the_graph_may_be_used_in_every_way():
    x = tenon.randn(4, requires_grad=True)

    def function(t):
        return (t.exp() * t.sin()).sum()

    def kept():
        return checkpoint(function, x, use_reentrant=False)

    (first,) = tenon.autograd.grad(kept(), x, create_graph=True)
    (second,) = tenon.autograd.grad(first.sum(), x)
    (expected,) = tenon.autograd.grad(function(x), x, create_graph=True)
    (expected_second,) = tenon.autograd.grad(expected.sum(), x)
    assert tenon.allclose(first, expected)
    assert tenon.allclose(second, expected_second)

    twice = kept()
    twice.backward(retain_graph=True)
    twice.backward()
    assert tenon.allclose(x.grad, 2 * expected)
    with pytest.raises(RuntimeError, match="second time"):
        twice.backward()


def test_only_parameters_may_need_gradients():
    layer = nn.Linear(3, 2)

    checkpoint(layer, tenon.ones(1, 3), use_reentrant=False).sum().backward()

    assert layer.weight.grad.tolist() == [[1.0] * 3] * 2


def test_the_older_way_says_where_it_gives_none():
    layer = nn.Linear(3, 2)
    x = tenon.ones(1, 3, requires_grad=True)

    with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
        assert not checkpoint(layer, tenon.ones(1, 3), use_reentrant=True).requires_grad
    with pytest.raises(RuntimeError, match=r"incompatible with \.grad\(\)"):
        tenon.autograd.grad(checkpoint(layer, x, use_reentrant=True).sum(), x)
    with pytest.raises(ValueError, match="Unexpected keyword arguments: input"):
        checkpoint(layer, input=x, use_reentrant=True)
    with pytest.warns(UserWarning, match="use_reentrant parameter should be passed"):
        checkpoint(layer, x)


def test_the_second_run_draws_the_first_ones_numbers_and_disturbs_none():
    x = tenon.ones(100, requires_grad=True)
    tenon.manual_seed(3)
    out = checkpoint(lambda t: nn.functional.dropout(t, 0.5), x, use_reentrant=False)
    before = tenon.get_rng_state()

    out.sum().backward()

    assert tenon.equal(x.grad, out.detach())
    assert tenon.equal(tenon.get_rng_state(), before)


@pytest.mark.parametrize("reentrant", [False, True])
def test_the_second_run_is_in_the_first_ones_autocast(reentrant):
    seen = []
    layer = nn.Linear(3, 3)

    def function(t):
        out = layer(t)
        seen.append(out.dtype)
        return out * out

    with tenon.autocast("cpu"):
        out = checkpoint(function, tenon.ones(2, 3, requires_grad=True), use_reentrant=reentrant)
    out.float().sum().backward()

    assert seen == [tenon.bfloat16] * 2
    assert layer.weight.grad.dtype is tenon.float32


def changing(*functions):
    rest = list(functions)
    return lambda t: rest.pop(0)(t)


CHANGES = {
    "fewer": (lambda t: t.exp().sin() * t, lambda t: t.exp(), "different number of tensors"),
    "more": (lambda t: t.exp(), lambda t: t.sin().exp().sin(), "trying to save more tensors"),
    "shape": (lambda t: t.exp(), lambda t: t[:1].exp(), "different metadata"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_second_run_that_differs_is_refused(name):
    first, second, words = CHANGES[name]
    x = tenon.ones(3, requires_grad=True)
    out = checkpoint(changing(first, second), x, use_reentrant=False, early_stop=False)

    with pytest.raises(CheckpointError, match=words):
        out.sum().backward()


@pytest.mark.parametrize("early", [False, True])
def test_the_second_run_ends_early_if_it_may(early):
    ends = []

    def function(t):
        out = t.exp()
        ends.append(1)
        return out

    x = tenon.ones(3, requires_grad=True)
    with set_checkpoint_early_stop(early):
        out = checkpoint(function, x, use_reentrant=False)
    out.sum().backward()

    assert len(ends) == (1 if early else 2)


def test_contexts_go_around_each_run():
    entered = []

    class Context:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            entered.append(self.name)

        def __exit__(self, *exc):
            pass

    x = tenon.ones(3, requires_grad=True)
    out = checkpoint(
        tenon.exp, x, use_reentrant=False, context_fn=lambda: (Context("first"), Context("second"))
    )
    assert entered == ["first"]
    out.sum().backward()

    assert entered == ["first", "second"]


def test_what_a_custom_function_saves_is_left_out_too():
    held = []

    class Cube(tenon.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            square = x * x
            held.append(weakref.ref(square))
            ctx.save_for_backward(x, square)
            return square * x

        @staticmethod
        def backward(ctx, grad):
            _, square = ctx.saved_tensors
            return grad * 3 * square

    x = tenon.full((3,), 2.0, requires_grad=True)
    out = checkpoint(Cube.apply, x, use_reentrant=False)
    assert held[0]() is None
    out.sum().backward()

    assert x.grad.tolist() == [12.0] * 3


def test_a_segment_count_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="segments=4 must be from 1 to the number of functions, 3"):
        checkpoint_sequential([tenon.exp] * 3, 4, tenon.ones(2), use_reentrant=False)


def test_debugging_lists_where_both_runs_saved_what(tmp_path, monkeypatch):
    # In a folder of the same name as ours.
    folder = tmp_path / "tenon" / "core"
    folder.mkdir(parents=True)
    (folder / "other_shape.py").write_text(OTHER_SHAPE)
    monkeypatch.syspath_prepend(str(folder))
    function = importlib.import_module("other_shape").other_shape_next_time

    x = tenon.ones(1, requires_grad=True)
    with set_checkpoint_debug_enabled(True):
        out = checkpoint(function, x, use_reentrant=False)
    both = r"passed `debug=True`[\s\S]*other_shape.py:6: return[\s\S]*other_shape.py:6: return"
    with pytest.raises(CheckpointError, match=both):
        out.sum().backward()


def test_what_a_function_saved_is_gone_with_the_second_run():
    saved = []

    class Keeping(tenon.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.clone()
            ctx.save_for_backward(y)
            saved.append(weakref.ref(y))
            return y

        @staticmethod
        def backward(ctx, grad):
            return grad + 0 * ctx.saved_tensors[0]

    gc.disable()
    try:
        checkpoint(Keeping.apply, tenon.ones(2, requires_grad=True), use_reentrant=False).sum().backward()
        assert [reference() for reference in saved] == [None, None]
    finally:
        gc.enable()


@pytest.mark.parametrize("grouped", [True, False])
def test_a_part_runs_again_once_for_each_pass_or_once_for_a_group_of_them(grouped):
    runs = []

    def function(x):
        runs.append(1)
        y = x.sin().cos()
        return y, y.sin().cos()

    x = tenon.full((16, 16), 0.5, requires_grad=True)
    y, z = checkpoint(function, x, use_reentrant=False)
    with GraphExecGroup() if grouped else contextlib.nullcontext():
        (by_y,) = tenon.autograd.grad(z.sum(), y)
        (by_x,) = tenon.autograd.grad(y, x, by_y)

    assert len(runs) == (2 if grouped else 3)
    assert tenon.equal(by_x, tenon.autograd.grad(function(x)[1].sum(), x)[0])


def test_what_a_pass_computed_again_and_did_not_use_goes_with_it():
    made = []

    def function(x):
        first = x.sin()
        made.append(weakref.ref(first.raw))
        second = first.cos()
        return second, second.sin()

    second, third = checkpoint(function, tenon.ones(16, 16, requires_grad=True), use_reentrant=False)
    with GraphExecGroup() as group:
        tenon.autograd.grad(third.sum(), second, retain_graph=True)
        gc.collect()
        assert [r() is not None for r in made] == [False, True]
    del group
    tenon.autograd.grad(third.sum(), second)
    gc.collect()

    assert [r() for r in made] == [None, None, None]


def test_groups_do_not_nest():
    with GraphExecGroup(), pytest.raises(RuntimeError, match="cannot be nested"), GraphExecGroup():
        pass


def test_saved_tensors_are_read_once_in_a_pass():
    class Twice(tenon.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,), (same,) = ctx.saved_tensors, ctx.saved_tensors
            return g * (x + same)

    x = tenon.ones(2, requires_grad=True)
    made = checkpoint(Twice.apply, x, use_reentrant=False)
    assert made.grad_fn.saved_tensors[0].equal(
        made.grad_fn.saved_tensors[0]
    )  # outside of a pass each runs again

    with pytest.raises(CheckpointError, match="already unpacked once"):
        made.sum().backward()
