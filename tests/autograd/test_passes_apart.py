"""Concurrent and nested backward passes, and the state that each of them has."""

import importlib
import threading
import weakref

import pytest

pytestmark = pytest.mark.oracle


@pytest.fixture(params=["tenon", "torch"])
def t(request):
    """The library under test, and the one that it is compared with."""
    found = pytest.importorskip(request.param)
    importlib.import_module(f"{request.param}.utils.checkpoint")
    return found


@pytest.mark.parametrize("mode", ["all", "any"])
def test_hooks_on_several_gradients_count_each_thread_by_itself(t, mode):
    x, y, z = (t.ones(2, requires_grad=True) for _ in range(3))
    seen, lock = [], threading.Lock()

    def hook(grads):
        with lock:
            seen.append([g is not None for g in grads] if mode == "all" else True)

    handle = t.autograd.graph.register_multi_grad_hook((x, y, z), hook, mode=mode)
    out, start = (x * y).sum(), threading.Barrier(4)

    def run():
        start.wait()
        out.backward(inputs=(x, y), retain_graph=True)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    out.backward(retain_graph=True)
    handle.remove()
    out.backward()

    assert seen == [[True, True, False] if mode == "all" else True] * 5


@pytest.mark.parametrize("early", [True, False])
def test_a_gradient_inside_a_checkpoint_may_ask_before_the_first_run_is_over(t, early):
    checkpoint, point = t.utils.checkpoint, t.tensor(0.5, requires_grad=True)

    def slope(x):
        with t.enable_grad():
            return t.autograd.grad(x.sin().exp(), x, create_graph=True)[0]

    with checkpoint.set_checkpoint_early_stop(early):
        made = checkpoint.checkpoint(slope, point, use_reentrant=False)
    found, expected = (t.autograd.grad(v, point)[0].item() for v in (made, slope(point)))

    assert found == pytest.approx(expected)


def test_passes_of_one_group_must_not_need_the_same_activation(t):
    checkpoint, x = t.utils.checkpoint, t.ones(2, requires_grad=True)
    out = checkpoint.checkpoint(lambda x: x.sin().cos().sum(), x, use_reentrant=False)

    with checkpoint.GraphExecGroup():
        out.backward(retain_graph=True)
        with pytest.raises(RuntimeError, match="Performing two backward calls that overlap"):
            out.backward()


def test_saved_values_that_may_change_are_copied_once_and_go_with_their_graphs(t):
    allow = t.autograd.graph.allow_mutation_on_saved_tensors
    x = t.full((2,), 3.0, requires_grad=True)
    with allow() as kept:
        a = x.clone()
        first, again = a**2, a**2
        assert (len(kept.tid_to_weakhandle), len(kept.cloned)) == (1, 0)
        a.sin_()
        second = a**2
        a.sin_()
        assert len(kept.cloned) == 2
        del second
        assert len(kept.cloned) == 1
        (first + again).sum().backward()
        assert x.grad.tolist() == [12.0, 12.0]
        del first, again
        assert not kept.cloned
        with pytest.raises(RuntimeError, match="contexts cannot be nested"), allow():
            pass
        left = (x * x).sum()
    with pytest.raises(AssertionError, match="Trying to backward outside"):
        left.backward()
    with allow(), pytest.raises(AssertionError, match="Trying to backward outside"):
        left.backward()
    assert weakref.ref(kept)() is kept


def test_multithreading_is_noted(t):
    switch, enabled = t.autograd.set_multithreading_enabled, t.autograd.is_multithreading_enabled

    with switch(False):
        assert not enabled()
        switch(True)
        assert enabled()
    assert enabled()
    switch(False)
    assert not enabled()
    switch(True)
    assert enabled()
