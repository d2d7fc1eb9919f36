"""The autocast region: nesting, disabled inner regions, decorators, exceptions, threads, and the cast cache."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.engine.interceptor import SLOT
from tenon.errors import ArgumentError, TenonWarning

BF16, F16, F32 = tenon.bfloat16, tenon.float16, tenon.float32
A = tenon.ones(2, 2)


def dtype_inside():
    return (A @ A).dtype


def casts(function):
    """How many casts ``function`` runs."""
    seen = []

    class Watcher:
        def run(self, op, args, attrs):
            seen.append(op.name)
            return SLOT.below(self)(op, args, attrs)

    watcher = Watcher()
    SLOT.push(watcher)
    try:
        function()
    finally:
        SLOT.pop(watcher)
    return seen.count("cast")


def test_nothing_is_in_the_slot_outside_a_region():
    with tenon.autocast("cpu"):
        assert SLOT.top is not None
        with tenon.autocast("cpu", enabled=False):
            assert SLOT.top is None

    assert SLOT.top is None
    assert dtype_inside() is F32


def test_regions_nest_and_restore_what_they_found():
    with tenon.autocast("cpu", dtype=BF16):
        assert dtype_inside() is BF16
        with tenon.autocast("cpu", dtype=F16):
            assert dtype_inside() is F16
            assert tenon.get_autocast_dtype("cpu") is F16
            with tenon.autocast("cpu", enabled=False):
                assert dtype_inside() is F32
                assert not tenon.is_autocast_enabled("cpu")
                with tenon.autocast("cpu"):
                    assert dtype_inside() is BF16 or dtype_inside() is F16
            assert dtype_inside() is F16
        assert dtype_inside() is BF16
    assert tenon.get_autocast_dtype("cpu") is BF16


def test_an_exception_leaves_the_region():
    with pytest.raises(ZeroDivisionError), tenon.autocast("cpu"):
        raise ZeroDivisionError

    assert not tenon.is_autocast_enabled("cpu")
    assert dtype_inside() is F32


def test_one_object_may_be_entered_inside_itself():
    region = tenon.autocast("cpu")
    with region:
        with region:
            assert dtype_inside() is BF16
        assert dtype_inside() is BF16
    assert dtype_inside() is F32


def test_it_decorates_functions_also_recursive_ones():
    @tenon.autocast("cpu")
    def down(n):
        return [dtype_inside(), *(down(n - 1) if n else []), dtype_inside()]

    assert set(down(3)) == {BF16}
    assert dtype_inside() is F32
    assert down.__name__ == "down"


def test_only_a_callable_can_be_decorated():
    with pytest.raises(TypeError, match="requires a callable"):
        tenon.autocast("cpu")(3)


def test_it_decorates_forward():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(2, 3)

        @tenon.autocast("cpu")
        def forward(self, x):
            return self.fc(x)

    assert Net()(A).dtype is BF16


def test_another_thread_computes_as_ever():
    found, inside, seen = [], threading.Event(), threading.Event()

    def work():
        inside.wait(10)
        x = tenon.ones(2, 2, requires_grad=True)
        y = x @ A
        y.sum().backward()
        found.append((y.dtype, x.grad.dtype, tenon.is_autocast_enabled("cpu")))
        seen.set()

    thread = threading.Thread(target=work)
    thread.start()
    with tenon.autocast("cpu"):
        inside.set()
        seen.wait(10)
        assert dtype_inside() is BF16
    thread.join(10)

    assert found == [(F32, F32, False)]


def test_threads_choose_their_dtypes_on_their_own():
    barrier, found, errors = threading.Barrier(3), {}, []

    def work(name, dtype, enabled):
        try:
            for _ in range(50):
                barrier.wait(10)
                with tenon.autocast("cpu", dtype=dtype, enabled=enabled):
                    found.setdefault(name, set()).add(dtype_inside())
        except Exception as error:
            errors.append(error)
            barrier.abort()

    plans = [("a", BF16, True), ("b", F16, True), ("c", BF16, False)]
    threads = [threading.Thread(target=work, args=plan) for plan in plans]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)

    assert errors == []
    assert found == {"a": {BF16}, "b": {F16}, "c": {F32}}


def test_a_decorated_function_is_called_by_several_threads_at_once():
    barrier, found = threading.Barrier(2), []

    @tenon.autocast("cpu")
    def inside():
        barrier.wait(10)
        return dtype_inside()

    threads = [threading.Thread(target=lambda: found.append((inside(), dtype_inside()))) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(10)

    assert found == [(BF16, F32)] * 2


# --- casts that are kept ---


def test_a_parameter_is_cast_once_per_region():
    layer = nn.Linear(2, 2, bias=False)

    def twice():
        with tenon.autocast("cpu"):
            layer(layer(A))

    # The first call casts input and weight; the second finds both in bfloat16.
    assert casts(twice) == 2
    assert casts(twice) == 2


def test_without_the_cache_it_is_cast_each_time():
    layer = nn.Linear(2, 2, bias=False)

    def twice():
        with tenon.autocast("cpu", cache_enabled=False):
            layer(layer(A))

    assert casts(twice) == 3


def test_only_parameters_are_kept():
    x = tenon.ones(2, 2)

    def thrice():
        with tenon.autocast("cpu"):
            for _ in range(3):
                x @ x

    assert casts(thrice) == 6


def test_kept_casts_live_until_the_outermost_region_ends():
    layer = nn.Linear(2, 2, bias=False)
    x = tenon.ones(2, 2, dtype=BF16)

    def nested():
        with tenon.autocast("cpu"):
            with tenon.autocast("cpu"):
                layer(x)
            layer(x)

    assert casts(nested) == 1


def test_a_weight_that_changes_inside_a_region_is_cast_anew():
    weight = nn.Parameter(tenon.ones(2, 2))
    with tenon.autocast("cpu"):
        before = A @ weight
        with tenon.no_grad():
            weight.mul_(3)
        after = A @ weight

    assert before.tolist() == [[2, 2], [2, 2]]
    assert after.tolist() == [[6, 6], [6, 6]]


def test_a_cast_made_without_gradients_is_not_used_where_they_are_wanted():
    weight = nn.Parameter(tenon.ones(2, 2))
    with tenon.autocast("cpu"):
        with tenon.no_grad():
            A @ weight
        (A @ weight).float().sum().backward()

    assert weight.grad.tolist() == [[2, 2], [2, 2]]


def test_uses_of_one_kept_cast_add_up_in_the_gradient():
    weight = nn.Parameter(tenon.ones(2, 2))
    with tenon.autocast("cpu"):
        y = (A @ weight).float().sum() + (A @ weight).float().sum()
    y.backward()

    assert weight.grad.dtype is F32
    assert weight.grad.tolist() == [[4, 4], [4, 4]]


# --- gradients ---


@pytest.mark.parametrize("inside", [True, False], ids=["inside", "outside"])
def test_backward_inside_and_outside_the_region_agree(inside):
    tenon.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))
    x, y = tenon.randn(5, 8), tenon.randint(0, 4, (5,))
    with tenon.autocast("cpu"):
        nn.functional.cross_entropy(net(x), y).backward()
    expected = [p.grad for p in net.parameters()]
    net.zero_grad()

    with tenon.autocast("cpu"):
        loss = nn.functional.cross_entropy(net(x), y)
        if inside:
            loss.backward()
    if not inside:
        loss.backward()

    for p, e in zip(net.parameters(), expected, strict=True):
        assert p.grad.dtype is F32
        np.testing.assert_array_equal(p.grad.numpy(), e.numpy())


def test_second_order_inside_a_region():
    x = tenon.full((2, 2), 0.5, requires_grad=True)
    with tenon.autocast("cpu"):
        y = (x @ A).float().square().sum()
        (first,) = tenon.autograd.grad(y, x, create_graph=True)
        first.square().sum().backward()

    assert first.dtype is F32
    assert x.grad.tolist() == [[64, 64], [64, 64]]


def test_an_optimizer_steps_inside_a_region_as_outside():
    for inside in (False, True):
        weight = nn.Parameter(tenon.ones(4))
        optimizer = tenon.optim.AdamW([weight], lr=0.1)
        weight.grad = tenon.full((4,), 0.5)
        with tenon.autocast("cpu", enabled=inside):
            optimizer.step()
        if not inside:
            expected = weight.detach().clone()

    assert weight.dtype is F32
    assert weight.tolist() == expected.tolist()


# --- functions of the state, and refusals ---


def test_state_functions_work_without_a_region():
    tenon.set_autocast_enabled("cpu", True)
    tenon.set_autocast_dtype("cpu", F16)
    try:
        assert tenon.is_autocast_enabled("cpu")
        assert dtype_inside() is F16
        tenon.set_autocast_dtype("cpu", BF16)
        assert dtype_inside() is BF16
    finally:
        tenon.set_autocast_enabled("cpu", False)
        tenon.set_autocast_dtype("cpu", BF16)
        tenon.clear_autocast_cache()
    assert dtype_inside() is F32


def test_the_cache_flag_is_restored():
    assert tenon.is_autocast_cache_enabled()
    with tenon.autocast("cpu", cache_enabled=False):
        assert not tenon.is_autocast_cache_enabled()
        with tenon.autocast("cpu"):
            assert not tenon.is_autocast_cache_enabled()
    assert tenon.is_autocast_cache_enabled()


def test_an_unknown_device_type_is_refused():
    with pytest.raises(ArgumentError, match="unsupported autocast device_type 'abacus'"):
        tenon.autocast("abacus")
    with pytest.raises(ValueError, match="of type `str`"):
        tenon.autocast(tenon.device("cpu"))
    assert tenon.amp.is_autocast_available("cpu")
    assert not tenon.amp.is_autocast_available("abacus")


def test_a_dtype_that_is_not_shorter_turns_it_off_with_a_warning():
    with pytest.warns(TenonWarning, match="not supported"), tenon.autocast("cpu", dtype=F32):
        assert dtype_inside() is F32


def test_cuda_without_a_gpu_is_off_with_a_warning():
    if tenon.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.warns(TenonWarning, match="CUDA is not available"), tenon.autocast("cuda"):
        assert dtype_inside() is F32
    with tenon.autocast("cuda", enabled=False):
        assert dtype_inside() is F32


def test_the_older_names_warn_and_work():
    with pytest.warns(FutureWarning, match="deprecated"):
        region = tenon.cpu.amp.autocast(dtype=F16)
    with region:
        assert dtype_inside() is F16
    with pytest.warns(FutureWarning, match="deprecated"):
        scaler = tenon.cpu.amp.GradScaler(init_scale=8.0)
    assert scaler.get_scale() == 8.0


def test_tensors_of_other_devices_are_left_alone():
    with tenon.autocast("cpu"):
        made = tenon.ones(2, 2, device="meta") @ tenon.ones(2, 2, device="meta")
    assert made.dtype is F32


@pytest.mark.oracle
def test_the_state_functions_answer_as_torchs():
    torch = pytest.importorskip("torch")

    def answers(T):
        found = []
        for region in ({}, {"dtype": T.float16}, {"enabled": False}, {"cache_enabled": False}):
            with T.autocast("cpu", **region):
                found.append(
                    (
                        T.is_autocast_enabled("cpu"), T.is_autocast_enabled(), str(T.get_autocast_dtype("cpu")),
                        T.is_autocast_cache_enabled(),
                    )
                )  # fmt: skip
        return found

    assert answers(tenon) == answers(torch)
