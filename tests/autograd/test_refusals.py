"""Errors of autograd, and its special cases, the same as in torch."""

import pytest

import tenon
from tenon.autograd import forward_ad
from tenon.errors import GradError, ViewError

pytestmark = pytest.mark.oracle
both = pytest.mark.parametrize("module", ["tenon", "torch"])


@both
@pytest.mark.parametrize("cut", [lambda t: t.unbind(), lambda t: t.split(1), lambda t: t.chunk(3)])
def test_one_of_several_views_must_not_change_while_taped(module, cut):
    t = pytest.importorskip(module)
    x = t.ones(3, requires_grad=True).clone()
    view = cut(x)[1]
    for changed in (view, view[...]):
        with pytest.raises(RuntimeError, match="is the output of a function that returns multiple views"):
            changed.mul_(2)
    plain = cut(t.ones(3))[1]
    plain.add_(1)  # nothing is taped: allowed
    with pytest.raises(RuntimeError, match="is the output of a function that returns multiple views"):
        plain.copy_(x[0])
    with t.no_grad():
        view.mul_(2)
    assert x.tolist() == [1, 2, 1]


def test_the_refusal_of_one_of_several_views_names_its_place():
    with pytest.raises(ViewError, match=r"Output 2 of \w+ is a view"):
        tenon.ones(3, requires_grad=True).clone().unbind()[2].add_(1)


@both
def test_views_made_in_inference_mode_need_gradients_as_what_they_show(module):
    t = pytest.importorskip(module)
    for needs in (True, False):
        x = t.ones(2, 3, requires_grad=needs).clone()
        with t.inference_mode():
            view = x.view(-1)
            further = view.view(3, 2)
            own = t.ones(2, 3, requires_grad=needs).view(-1)
        for v in (view, further):
            assert (v.requires_grad, v.is_inference(), v.is_leaf) == (needs, False, True)
        assert own.is_inference() and not own.requires_grad
        assert (view * view).requires_grad is needs
        if needs:
            for change in (lambda v: v.add_(1), lambda v: v.t_()):
                with pytest.raises(RuntimeError, match="A view was created in inference mode"):
                    change(view)


@both
def test_powers_of_zero_have_the_slope_of_their_limit(module):
    t = pytest.importorskip(module)
    for base in (0.0, t.zeros(3)):
        exponent = t.tensor([-1.0, 0.0, 1.0], requires_grad=True)
        t.pow(base, exponent).sum().backward()
        assert exponent.grad.tolist() == [float("-inf"), 0, 0]


def test_a_negative_number_has_a_gradient_by_its_complex_exponent():
    torch = pytest.importorskip("torch")
    found = []
    for t in (tenon, torch):
        exponent = t.tensor([0.5 + 0.25j], requires_grad=True)
        t.pow(-1, exponent).abs().sum().backward()
        found.append(exponent.grad.tolist())
    assert found[0] == pytest.approx(found[1], abs=1e-6)


@both
def test_sizes_are_not_data_for_new(module):
    t = pytest.importorskip(module)
    assert t.ones(2).new(t.ones(5).size()).shape == (5,)
    assert t.Tensor(t.ones(2, 3).size()).shape == (2, 3)


def test_data_cannot_be_deleted():
    with pytest.raises(GradError, match="Deleting tensor data is not allowed"):
        del tenon.ones(2).data


@both
def test_a_view_that_must_not_be_used_still_prints(module):
    t = pytest.importorskip(module)
    x = t.ones(2, requires_grad=True).clone()
    with t.no_grad():
        view = x[:]
    x.mul_(2)
    assert repr(view) == "tensor([2., 2.], grad_fn=<Invalid>)"


def test_dual_tensors_print_their_tangent():
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(tenon.ones(2), tenon.ones(2))
        assert repr(dual * 2).endswith("tangent=tensor([2., 2.]))")
        assert "tangent" not in repr(tenon.ones(2))


def test_saved_values_may_change_where_that_is_allowed():
    x = tenon.tensor([1.0, 2.0], requires_grad=True)
    with tenon.autograd.graph.allow_mutation_on_saved_tensors():
        y = x.clone()
        out, powers = (y**2).sum(), y.exp()
        y.sin_()
        powers.mul_(0)
        out.backward()
    assert x.grad.tolist() == [2, 4]


@both
def test_distinct_values_need_a_gradient_and_refuse_it(module):
    t = pytest.importorskip(module)
    x = t.tensor([1.0, 2.0], requires_grad=True)
    values, counts = t.unique(x, return_counts=True)
    assert values.requires_grad
    assert not counts.requires_grad
    with pytest.raises(NotImplementedError, match=r"the derivative for '_?unique2' is not implemented"):
        (values * x).sum().backward()
    assert not t.unique(x.detach()).requires_grad


@both
def test_the_next_number_has_the_slope_of_a_step_off_the_first(module):
    t = pytest.importorskip(module)
    x, y = (t.tensor(v, requires_grad=True) for v in ([1.0, 2.0, 0.0], [0.0, 2.0, 1.0]))
    t.nextafter(x, y).backward(t.tensor([3.0, 4.0, 5.0]))
    assert x.grad.tolist() == [3, 0, 5]
    assert y.grad.tolist() == [0, 0, 0]


@both
def test_gradients_have_the_dtype_that_their_leaf_asks_for(module):
    t = pytest.importorskip(module)

    class Wide(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g.to(t.float64)

    def found(kind):
        x = t.ones(2, requires_grad=True)
        if kind != "own":
            x.grad_dtype = kind
        Wide.apply(x).sum().backward()
        (x * 2).sum().backward()
        return x.grad.dtype, x.grad.tolist()

    for kind, expected in (("own", t.float32), (None, t.float64), (t.float16, t.float16)):
        assert found(kind) == (expected, [3, 3])
    x = t.ones(2, requires_grad=True)
    assert x.grad_dtype is t.float32
    with pytest.raises(RuntimeError, match="can only be set on leaf"):
        (x * 2).grad_dtype = None
    with pytest.raises(RuntimeError, match="attempting to assign a gradient with dtype"):
        x.grad = t.ones(2, dtype=t.float64)
    x.grad_dtype = t.float64
    x.grad = t.ones(2, dtype=t.float64)
    with pytest.raises(RuntimeError, match="there is already a gradient"):
        x.grad_dtype = t.float16


@both
def test_versions_can_be_kept_over_a_change(module):
    t = pytest.importorskip(module)
    x = t.ones(2).add_(1)
    with t.autograd._unsafe_preserve_version_counter(x):
        x.mul_(2)
    assert x._version == 1
    assert x.tolist() == [4, 4]


@both
def test_tensors_of_inference_mode_can_be_resized_there(module):
    t = pytest.importorskip(module)
    with t.inference_mode():
        assert t.ones(1, 2, 3, requires_grad=True).resize_(1, 2).shape == (1, 2)
    with pytest.raises(RuntimeError, match="cannot resize variables that require grad"):
        t.ones(2, requires_grad=True).resize_(1)


@both
def test_storages_know_whether_they_are_shared(module):
    t = pytest.importorskip(module)
    x = t.ones(4)
    assert not x.untyped_storage().is_shared()
    x.share_memory_()
    assert x.untyped_storage().is_shared()


@both
def test_backward_warns_of_the_cycle_that_a_gradient_with_a_graph_makes(module):
    t = pytest.importorskip(module)
    always = getattr(t, "set_warn_always", None)
    if always is not None:
        always(True)  # torch warns once a process
    try:
        x = t.ones(2, requires_grad=True)
        with pytest.warns(UserWarning, match=r"Using backward\(\) with create_graph=True"):
            (x * x).sum().backward(create_graph=True)
    finally:
        if always is not None:
            always(False)
        x.grad = None


def test_two_zeros_scattered_to_one_place_have_a_first_derivative_only():
    x = tenon.tensor([2.0, 3.0], requires_grad=True)
    source = tenon.tensor([0.0, 0.0, 5.0], requires_grad=True)
    index = tenon.tensor([0, 0, 1])

    def slopes(where):
        made = x.scatter_reduce(0, where, source, "prod")
        return tenon.autograd.grad(made.sum(), source, create_graph=True)[0]

    assert slopes(index).tolist() == [0.0, 0.0, 3.0]
    with pytest.raises(RuntimeError, match="Double backward is unsupported for src when >1 zeros"):
        slopes(index).sum().backward()
    slopes(tenon.tensor([0, 1, 1])).sum().backward()  # one zero at each place
    assert source.grad.tolist() == [0.0, 3.0, 3.0]
