"""Saved tensors of nodes under torch's names, and hooks on single saved tensors."""

import gc
import weakref

import pytest

import tenon
from tenon import nn
from tenon.autograd import Function, SavedTensor
from tenon.autograd.graph import disable_saved_tensors_hooks, saved_tensors_hooks
from tenon.errors import FreedGraphError, GradError


def leaf(*values):
    return tenon.tensor(values, dtype=tenon.float64, requires_grad=True)


class Keeper(Function):
    """Identity that saves its input and a None."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x, None)
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]


def test_inputs_results_numbers_and_attrs_have_torchs_names():
    a, b = leaf(1.0, 2.0), leaf(3.0, 4.0)
    product = a * b

    assert product.grad_fn._saved_self is a and product.grad_fn._saved_other is b
    assert a.exp().grad_fn._saved_result.tolist() == a.exp().tolist()
    result = a.exp()
    seen = result.grad_fn._saved_result
    with tenon.no_grad():
        result += 1
    assert seen._version == result._version == 1
    assert tenon.stack([a, b], dim=0).grad_fn._saved_dim == 0
    assert tuple(a.mean().grad_fn._saved_self_sym_sizes) == (2,)
    image = tenon.ones(1, 2, 4, 5, requires_grad=True)
    columns = tenon.nn.functional.unfold(image, 3).grad_fn
    assert (columns._saved_self_sym_argsize_minus_2, columns._saved_self_sym_argsize_minus_1) == (4, 5)
    assert tenon.nn.Conv2d(2, 3, 1)(image).grad_fn._saved_bias_sym_sizes_opt == (3,)
    with pytest.raises(AttributeError, match="_saved_weather"):
        _ = product.grad_fn._saved_weather
    with pytest.raises(AttributeError, match="does not read that value"):
        _ = (a + b).grad_fn._saved_self


NUMBERS = {
    "output_size": (lambda t, x: t.nn.functional.interpolate(x, 4, mode="linear"), (4,)),
    "scales": (lambda t, x: t.nn.functional.interpolate(x, scale_factor=0.5, mode="linear"), 0.5),
    "align_corners": (lambda t, x: t.nn.functional.interpolate(x, 4, mode="linear"), False),
    "p": (lambda t, x: t.pdist(x[0], p=1), 1.0),
    "rounding_mode": (lambda t, x: t.div(x, 2.0, rounding_mode="trunc"), "trunc"),
    "storage_offset": (lambda t, x: x.as_strided((2,), (1,), 1), 1),
    "negative_slope": (lambda t, x: t.nn.functional.leaky_relu(x, 0.2), 0.2),
    "max_val": (lambda t, x: t.nn.functional.hardtanh(x), 1.0),
    "dim1": (lambda t, x: x.transpose(0, 1), 1),
    "index": (lambda t, x: x.select(2, 1), 1),
    "end": (lambda t, x: x[:, :, 0:1], 1),
    "exponent": (lambda t, x: x.pow(2), 2),
    "reduction": (lambda t, x: t.nn.functional.mse_loss(x, x.detach()), 1),
    "dimension": (lambda t, x: x.unfold(2, 2, 1), 2),
}


@pytest.mark.parametrize("module", ["tenon", pytest.param("torch", marks=pytest.mark.oracle)])
def test_numbers_have_torchs_names_and_forms(module):
    t = pytest.importorskip(module)
    x = t.ones(1, 2, 3, requires_grad=True)

    for name, (call, wanted) in NUMBERS.items():
        assert getattr(call(t, x).grad_fn, f"_saved_{name}") == wanted
    columns = x[:, t.tensor([0, 1])].grad_fn._saved_indices
    assert columns[0] is None and columns[1].tolist() == [0, 1]
    assert not hasattr(x.trunc().grad_fn, "_saved_rounding_mode")
    assert not hasattr(x[:, :1].grad_fn, "_saved_scales_d")


def test_what_was_freed_says_so():
    a = leaf(2.0)
    out = a * a
    raw = out.grad_fn._raw_saved_self
    out.backward()

    with pytest.raises(FreedGraphError, match="after they have already been freed"):
        _ = out.grad_fn._saved_self
    for kept in (raw, out.grad_fn._raw_saved_self):
        with pytest.raises(GradError, match="after it has been freed"):
            kept.register_hooks(lambda x: x, lambda x: x)
        with pytest.raises(FreedGraphError, match="after they have already been freed"):
            kept.unpack()


def test_hooks_come_as_two_functions():
    for given in ((len,), (1, 1)):
        with pytest.raises(TypeError, match="incompatible function arguments"):
            (leaf(2.0) ** 2).grad_fn._raw_saved_self.register_hooks(*given)


def test_hooks_on_one_saved_value_change_that_one_only():
    a = leaf(2.0, 3.0)
    out = a * a
    out.grad_fn._raw_saved_self.register_hooks(lambda x: 2 * x, lambda x: x)

    out.sum().backward()

    assert a.grad.tolist() == [6.0, 9.0]


def test_hooks_on_a_saved_result_work_to_second_order():
    a = leaf(0.5)
    out = a.exp()
    out.grad_fn._raw_saved_result.register_hooks(lambda x: x.numpy(), lambda x: tenon.from_numpy(x))

    (first,) = tenon.autograd.grad(out, a, create_graph=True)
    (second,) = tenon.autograd.grad(first, a)

    assert second.item() == pytest.approx(a.exp().item())


def test_what_raw_saved_values_show():
    def unpack(x):
        return x

    a = leaf(2.0)
    with saved_tensors_hooks(lambda x: x, unpack):
        b = a * a
    c = b.exp()
    d = c * c

    assert b.grad_fn._raw_saved_self.data is a and b.grad_fn._raw_saved_self.unpack_hook is unpack
    assert c.grad_fn._raw_saved_result.data is not c
    assert d.grad_fn._raw_saved_self.data is c and d.grad_fn._raw_saved_self.unpack_hook is None


def test_hooks_are_set_once_and_are_functions():
    raw = (leaf(1.0) * leaf(2.0)).grad_fn._raw_saved_self

    with pytest.raises(TypeError, match="incompatible function arguments"):
        raw.register_hooks(1, 2)
    raw.register_hooks(lambda x: x, lambda x: x)
    with pytest.raises(GradError, match="already been set"):
        raw.register_hooks(lambda x: x, lambda x: x)
    with pytest.raises(GradError, match="from Python is forbidden"):
        SavedTensor()


def test_pack_hooks_must_not_change_their_input_and_unpack_hooks_return_tensors():
    a = leaf(1.0)

    def change(x):
        x += 1
        return x

    with (
        saved_tensors_hooks(change, lambda x: x),
        pytest.raises(GradError, match="modifying its input in place"),
    ):
        a.exp()
    out = a * a
    out.grad_fn._raw_saved_self.register_hooks(lambda x: x, lambda x: 1)
    with pytest.raises(TypeError, match="expected to be a Tensor but got int"):
        out.backward()


def test_hooks_can_be_refused():
    with (
        disable_saved_tensors_hooks("not here"),
        pytest.raises(GradError, match="not here"),
        saved_tensors_hooks(lambda x: x, lambda x: x),
    ):
        pass
    with (
        saved_tensors_hooks(lambda x: x, lambda x: x),
        pytest.raises(GradError, match="now refused"),
        disable_saved_tensors_hooks("now refused"),
    ):
        pass


def test_a_functions_saved_values_take_hooks_too():
    a = leaf(2.0, 3.0)
    out = Keeper.apply(a)
    kept, nothing = out.grad_fn._raw_saved_tensors

    kept.register_hooks(lambda x: 10 * x, lambda x: x)
    with pytest.raises(GradError, match="None is forbidden"):
        nothing.register_hooks(lambda x: x, lambda x: x)
    out.sum().backward()

    assert a.grad.tolist() == [20.0, 30.0]
    with pytest.raises(FreedGraphError):
        _ = out.grad_fn._raw_saved_tensors


def test_saved_tensors_may_be_dropped_as_they_are_read():
    class Once(Function):
        clear_saved_tensors_on_access = True

        @staticmethod
        def forward(ctx, x, times):
            ctx.save_for_backward(x)
            ctx.times = times
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            for _ in range(ctx.times):
                (x,) = ctx.saved_tensors
            alive = weakref.ref(x)
            del x
            assert alive() is None
            return g, None

    Once.apply(leaf(1.0) * 2, 1).backward()
    with pytest.raises(GradError, match="can only be accessed once"):
        Once.apply(leaf(1.0) * 2, 2).backward()


def test_hooks_that_keep_outputs_leave_no_cycle():
    class Squaring(Function):
        @staticmethod
        def forward(ctx, x):
            out = x * x
            ctx.save_for_backward(out)
            return out

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0]

    def run():
        with saved_tensors_hooks(lambda x: x, lambda x: x):
            outs = [Squaring.apply(leaf(2.0)), leaf(2.0).exp()]
        for out in outs:
            out.backward(retain_graph=True)
        return [weakref.ref(out.grad_fn) for out in outs]

    gc.disable()
    try:
        assert [node() for node in run()] == [None, None]
    finally:
        gc.enable()


def test_what_a_max_pool_returns_may_be_modified_in_place():
    x = tenon.tensor([[[[1.0, 3.0, -2.0, -4.0]]]], dtype=tenon.float64, requires_grad=True)

    def pooled(x):
        return nn.functional.max_pool2d(x * x * x, (1, 2)).relu_()

    def gradient(kept=False):
        return tenon.autograd.grad(pooled(x).sum(), x, create_graph=kept)[0]

    assert gradient().tolist() == gradient(kept=True).tolist() == [[[[0.0, 27.0, 0.0, 0.0]]]]
    with saved_tensors_hooks(lambda t: t, lambda t: t):
        assert gradient().tolist() == [[[[0.0, 27.0, 0.0, 0.0]]]]
    net = nn.Sequential(nn.MaxPool2d((1, 2)), nn.ReLU(inplace=True)).double()
    compiled = tenon.compile(lambda x: tenon.autograd.grad(net(x * 2).sum(), x)[0], fullgraph=True)
    for _ in range(4):
        assert compiled(x).tolist() == [[[[0.0, 2.0, 0.0, 0.0]]]]
