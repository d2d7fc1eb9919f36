"""Prepared convolutions, pooling, batch norm and sums against the NumPy kernels, in plain and other layouts."""

from __future__ import annotations

import numpy as np
import pytest

import tenon.ops  # noqa: F401  (fills the table of ops)
from tenon.engine.aval import Aval
from tenon.engine.op import table
from tenon.extend import errors
from tenon.graph.epilogue import epilogue
from tenon.kernels.backend import Backend
from tenon_cpu.onednn import winograd
from tenon_cpu.onednn.layouts import PLAIN, Assigned, blocked, reorder
from tenon_cpu.onednn.preferred_layouts import finishes, follows, wanted_layouts
from tenon_cpu.onednn.prepared import PREPARE
from tenon_cpu.onednn.runtime import available

pytestmark = [pytest.mark.skipif(not available(), reason="oneDNN is not installed"), pytest.mark.together]


class Reference(Backend):
    """The reference forwards over NumPy."""

    name, xp, array_type = "reference", np, np.ndarray


REFERENCE = Reference()


def normal(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape, dtype=np.float32)


def aval(value):
    return Aval(value.shape, value.dtype) if isinstance(value, np.ndarray) else value


def moved(array, source, target):
    made = np.empty(array.shape, array.dtype)
    reorder(array, source, made, target)()
    return made


def wanted(name, ins, attrs):
    made = REFERENCE.kernels[table[name]](*ins, **attrs)
    return made if isinstance(made, tuple) else (made,)


def check(name, ins, attrs, *, layouts=True, outputs=None, extra=None):
    """Prepare a call, run it twice and compare; return whether it was prepared, and the layouts."""
    results = wanted(name, ins, attrs)
    found = wanted_layouts(table[name], list(map(aval, ins)), list(map(aval, results)), attrs)
    assigned = found if layouts and found is not None else Assigned.plain(ins, results)
    given = [
        moved(a, PLAIN, layout) if isinstance(a, np.ndarray) else a
        for a, layout in zip(ins, assigned.inputs, strict=True)
    ]
    outs = [np.full(r.shape, 7, r.dtype) for r in results]
    call = PREPARE[name](given, {**attrs, "layouts": assigned, **(extra or {})}, outs)
    if call is None:
        return None
    call()
    call()
    for i in range(len(results)) if outputs is None else outputs:
        made = moved(outs[i], assigned.outputs[i], PLAIN)
        top = np.nanmax(np.where(np.isfinite(results[i]), abs(results[i]), 0))
        np.testing.assert_allclose(made, results[i], rtol=1e-4, atol=1e-5 * max(1.0, top))
    return assigned


CONVOLUTIONS = [
    # channels, filters, groups, kernel, stride, padding, dilation
    (16, 32, 1, 3, 1, 1, 1),
    (3, 32, 1, 3, 2, 1, 1),
    (32, 10, 1, 3, 1, 1, 1),
    (64, 64, 4, 3, 1, 1, 1),
    (32, 32, 32, 3, 1, 1, 2),
    (32, 64, 1, 1, 2, 0, 1),
    (5, 6, 1, 3, 1, 1, 1),
    (8, 32, 1, 3, 1, 1, 1),
]


def convolution(rank, case):
    channels, filters, groups, kernel, stride, padding, dilation = case
    x = normal(2, channels, *(9, 8, 7)[:rank])
    weight = normal(filters, channels // groups, *(kernel,) * rank)
    attrs = {
        "stride": (stride,) * rank,
        "padding": (padding,) * rank,
        "dilation": (dilation,) * rank,
        "groups": groups,
    }
    g = normal(*wanted("conv", (x, weight), attrs)[0].shape, seed=1)
    return x, weight, normal(filters), g, attrs


@pytest.mark.slow
@pytest.mark.parametrize("layouts", [True, False], ids=["blocked", "plain"])
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_convolutions_and_their_gradients_are_the_references(case, rank, layouts):
    x, weight, bias, g, attrs = convolution(rank, case)

    assert check("convolution", (x, weight, bias), attrs, layouts=layouts)
    assert check("conv", (x, weight), attrs, layouts=layouts)
    assert check("conv_input_grad", (g, weight), {"sizes": x.shape[2:], **attrs}, layouts=layouts)
    assert check("conv_weight_grad", (x, g), {"kernel": weight.shape[2:], **attrs}, layouts=layouts)


def test_whole_blocks_of_channels_stay_blocked_through_a_chain(avx2):
    x, weight, bias, g, attrs = convolution(2, CONVOLUTIONS[0])
    own = blocked()

    forward = check("convolution", (x, weight, bias), attrs)
    input_grad = check("conv_input_grad", (g, weight), {"sizes": x.shape[2:], **attrs})
    weight_grad = check("conv_weight_grad", (x, g), {"kernel": (3, 3), **attrs})

    assert own != PLAIN
    assert (forward.inputs[0], forward.outputs) == (own, (own,))
    assert (input_grad.inputs[0], input_grad.outputs) == (own, (own,))
    assert (weight_grad.inputs, weight_grad.outputs) == ((own, own), (PLAIN,))


def test_an_image_of_three_channels_comes_in_plain_and_goes_out_blocked():
    x, weight, bias, _, attrs = convolution(2, CONVOLUTIONS[1])

    made = check("convolution", (x, weight, bias), attrs)

    assert (made.inputs[0], made.outputs) == (PLAIN, (blocked(),))


@pytest.mark.parametrize("always", [True, False], ids=["winograd", "direct"])
@pytest.mark.parametrize("names", [("mul",), ("add",), ("mul", "add"), ("added",), ("mul", "add", "added")])
def test_an_epilogue_scales_shifts_and_adds_and_keeps_nan(monkeypatch, names, always):
    monkeypatch.setattr(winograd, "is_faster", lambda problem: always)
    x, weight, bias, g, attrs = convolution(2, CONVOLUTIONS[0])
    x[0, 0, 4, 4] = np.nan
    ins, (expected,) = (x, weight, bias), wanted("convolution", (x, weight, bias), attrs)
    operands = {"mul": normal(32, 1, 1, seed=2), "add": normal(32, 1, 1, seed=3), "added": g}
    for name in names:
        expected = expected * operands[name] if name == "mul" else expected + operands[name]
    steps = tuple((name.removesuffix("ed"), aval(operands[name])) for name in names)

    assert finishes(table["convolution"], list(map(aval, ins)), [aval(expected)], attrs, steps)
    whole = {"base": table["convolution"], "count": 3, "attrs": attrs, "steps": tuple(n for n, _ in steps)}
    ins = (*ins, *(operands[name] for name in names))
    assigned = wanted_layouts(epilogue, list(map(aval, ins)), [aval(expected)], whole)
    given = [moved(a, PLAIN, layout) for a, layout in zip(ins, assigned.inputs, strict=True)]
    out = np.empty_like(expected)
    call = PREPARE["epilogue"](given, {**whole, "layouts": assigned}, [out])
    for _ in range(2):
        call()

    result = moved(out, assigned.outputs[0], PLAIN)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
    assert np.isnan(result).sum() == 32 * 9


@pytest.mark.parametrize(
    "steps",
    [
        [("add", (2, 32, 9, 8)), ("add", (2, 32, 9, 8))],
        [("add", (32, 1, 1)), ("mul", (32, 1, 1))],
        [("mul", (2, 32, 9, 8))],
        [("add", (8,))],
    ],
    ids=str,
)
def test_other_epilogues_are_left_to_other_kernels(steps):
    x, weight, bias, g, attrs = convolution(2, CONVOLUTIONS[0])
    ins = list(map(aval, (x, weight, bias)))

    asked = [(name, Aval(shape, np.dtype(np.float32))) for name, shape in steps]

    assert not finishes(table["convolution"], ins, [aval(g)], attrs, asked)


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_a_constant_weight_is_packed_once(case):
    x, weight, bias, g, attrs = convolution(2, case)
    constant = {"constant": (1,)}

    assert check("convolution", (x, weight, bias), attrs, layouts=False, extra=constant)
    assert check(
        "conv_input_grad", (g, weight), {"sizes": x.shape[2:], **attrs}, layouts=False, extra=constant
    )


def test_the_bias_gradient_comes_with_the_weight_gradient():
    x, weight, _, g, attrs = convolution(2, CONVOLUTIONS[0])
    dw, db = np.empty_like(weight), np.empty(weight.shape[0], np.float32)

    PREPARE["conv_weight_grad"]([x, g], {"kernel": (3, 3), **attrs}, [dw, db])()

    np.testing.assert_allclose(db, g.sum((0, 2, 3)), rtol=1e-4, atol=1e-4)


def test_a_prepared_call_reads_its_memory_again():
    x, weight, bias, _, attrs = convolution(2, CONVOLUTIONS[0])
    out = np.empty_like(wanted("convolution", (x, weight, bias), attrs)[0])
    call = PREPARE["convolution"]([x, weight, bias], attrs, [out])
    call()

    x *= 2
    weight += 1
    bias -= 1
    call()

    np.testing.assert_allclose(out, wanted("convolution", (x, weight, bias), attrs)[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("affine", [(True, True), (False, False), (True, False), (False, True)], ids=str)
def test_batch_norm_and_its_gradients_are_the_references(affine):
    x = normal(3, 32, 9, 8) * 3 + 5
    weight, bias = (normal(32, seed=i) if given else None for i, given in enumerate(affine))

    assert check("batch_norm", (x, weight, bias), {"eps": 1e-3}).inputs[0] == blocked()

    _, _, _, mean, deviation = wanted("batch_norm", (x, weight, bias), {"eps": 1e-3})
    needs = (True, *affine)
    g = normal(*x.shape, seed=2)
    ins = (g, x, weight, mean, deviation)
    computed = [i for i, need in enumerate(needs) if need]
    assert check("batch_norm_grad", ins, {"needs": needs}, outputs=computed).outputs[0] == blocked()


def test_batch_norm_of_nan_and_of_a_constant_channel():
    x, weight, bias = normal(3, 32, 9, 8), normal(32), normal(32)
    x[:, 3], x[0, 5, 2, 2] = 4.0, np.nan

    assert check("batch_norm", (x, weight, bias), {"eps": 1e-5})
    _, _, _, mean, deviation = wanted("batch_norm", (x, weight, bias), {"eps": 1e-5})
    g = normal(*x.shape, seed=1)
    assert check("batch_norm_grad", (g, x, weight, mean, deviation), {"needs": (True,) * 3})


POOLS = [
    (2, 2, 0, 1, False),
    (3, 2, 1, 1, False),
    (3, 2, 1, 1, True),
    (3, 1, 1, 1, False),
    (2, 3, 0, 2, True),
]


def pool(case):
    kernel, stride, padding, dilation, ceil_mode = case
    return {
        "kernel": (kernel,) * 2,
        "stride": (stride,) * 2,
        "padding": (padding,) * 2,
        "dilation": (dilation,) * 2,
        "ceil_mode": ceil_mode,
    }


@pytest.mark.parametrize("layouts", [True, False], ids=["blocked", "plain"])
@pytest.mark.parametrize("value", [None, np.nan, np.inf, -np.inf, "ties"], ids=str)
@pytest.mark.parametrize("case", POOLS, ids=str)
def test_the_largest_of_each_window_and_its_gradient_are_the_references(case, value, layouts):
    x, attrs = normal(3, 32, 9, 8), pool(case)
    if value == "ties":
        x = np.round(x)
    elif value is not None:
        x[0, :3, :4, :4] = value

    made = check("max_pool", (x,), attrs, layouts=layouts)

    out = wanted("max_pool", (x,), attrs)[0]
    gradient = check("max_pool_grad", (normal(*out.shape), x, out), attrs, layouts=layouts)
    if case[3] == 1 and (layouts or case[0] != 2):
        assert made
        assert gradient


@pytest.mark.parametrize("layouts", [True, False], ids=["blocked", "plain"])
@pytest.mark.parametrize("include_pad", [True, False])
@pytest.mark.parametrize("case", POOLS[:4], ids=str)
def test_averages_and_their_gradient_are_the_references(case, include_pad, layouts):
    x, attrs = normal(3, 32, 9, 8), pool(case) | {"include_pad": include_pad}
    del attrs["dilation"]
    if not case[4]:
        x[1, 1, 3, 3] = np.inf

    made = check("avg_pool", (x,), attrs, layouts=layouts)

    g = normal(*wanted("avg_pool", (x,), attrs)[0].shape)
    gradient = check("avg_pool_grad", (g,), {"shape": x.shape, **attrs}, layouts=layouts)
    if not case[4]:
        assert made
        assert gradient


def test_adaptive_averages_with_even_windows_are_pooled():
    x = normal(3, 32, 8, 8)
    for sizes, even in (((1, 1), True), ((2, 4), True), ((3, 3), False)):
        made = check("adaptive_avg_pool", (x,), {"sizes": sizes})
        gradient = check("adaptive_avg_pool_grad", (normal(3, 32, *sizes),), {"shape": x.shape})

        assert (made is not None, gradient is not None) == (even, even)


@pytest.mark.parametrize("keepdims", [True, False])
@pytest.mark.parametrize("axes", [(2, 3), (0, 2, 3)], ids=str)
def test_sums_and_means_of_blocked_arrays_are_plain(axes, keepdims):
    x = normal(3, 32, 8, 7)

    for name in ("sum", "mean"):
        made = check(name, (x,), {"axes": axes, "keepdims": keepdims})

        assert (made.inputs, made.outputs) == ((blocked(),), (PLAIN,))


def test_elementwise_ops_of_one_shape_follow_and_broadcasts_over_channels_do_not():
    x, channel, number = Aval((2, 32, 4, 4), np.float32), Aval((1, 32, 1, 1), np.float32), 2.0

    assert follows(table["add"], [x, x], [x])
    assert follows(table["mul"], [x, number], [x])
    assert follows(table["relu"], [x], [x])
    assert not follows(table["add"], [x, channel], [x])
    assert not follows(table["sum"], [x], [channel])
    assert not follows(table["matmul"], [x, x], [x])


def test_layouts_that_nothing_computes_are_an_error_and_not_the_plain_kernel():
    x = normal(2, 32, 4, 4).astype(np.float64)
    own = Assigned((blocked(),), (blocked(),))
    attrs = pool(POOLS[0])

    with pytest.raises(errors.BackendError, match="Assign the layouts that wanted_layouts returns"):
        PREPARE["max_pool"]([x], {**attrs, "layouts": own}, [np.empty((2, 32, 2, 2))])


def test_empty_arrays_are_left_to_the_eager_kernel():
    x, weight = np.empty((0, 16, 4, 4), np.float32), normal(16, 16, 3, 3)
    attrs = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}

    assert wanted_layouts(table["conv"], [aval(x), aval(weight)], [aval(x)], attrs) is None
    assert PREPARE["conv"]([x, weight], attrs, [np.empty_like(x)]) is None


@pytest.mark.parametrize("shape", [(2, 32, 5), (2, 32, 3, 4), (2, 32, 2, 3, 4)], ids=str)
def test_blocks_are_channels_side_by_side(shape):
    x, own = normal(*shape), blocked()

    made = moved(x, PLAIN, own)

    cut = x.reshape(2, 32 // own.block, own.block, *shape[2:])
    np.testing.assert_array_equal(made.ravel(), np.moveaxis(cut, 2, -1).ravel())
    np.testing.assert_array_equal(moved(made, own, PLAIN), x)


def test_two_threads_run_their_programs_at_the_same_time():
    import threading

    x, weight, bias, _, attrs = convolution(2, CONVOLUTIONS[0])
    calls, outs = [], []
    for i in range(2):
        outs.append(np.empty_like(wanted("convolution", (x, weight, bias), attrs)[0]))
        calls.append(PREPARE["convolution"]([x + i, weight, bias], attrs, [outs[-1]]))
    expected = [wanted("convolution", (x + i, weight, bias), attrs)[0] for i in range(2)]
    wrong: list[int] = []

    def work(i):
        for _ in range(50):
            outs[i].fill(0)
            calls[i]()
            if not np.allclose(outs[i], expected[i], rtol=1e-4, atol=1e-4):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not wrong


@pytest.mark.parametrize("make", [lambda x: np.broadcast_to(x[:, :1], x.shape), lambda x: x[:, :, ::-1]])
def test_repeated_and_reversed_arrays_are_brought_into_blocks(make):
    given = make(np.random.default_rng(0).normal(size=(2, 32, 4, 3)).astype(np.float32))
    into, back = np.empty(given.shape, np.float32), np.empty(given.shape, np.float32)

    reorder(given, PLAIN, into, blocked())()

    reorder(into, blocked(), back, PLAIN)()
    np.testing.assert_array_equal(back, given)
