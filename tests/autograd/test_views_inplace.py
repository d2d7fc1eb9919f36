"""Views, in-place changes and their gradients, the same as in torch."""

import pytest

import tenon
from tenon.errors import GradError, ViewError

pytestmark = [pytest.mark.oracle, pytest.mark.together]


def leaf(t, *shape, start=1.0):
    size = 1
    for s in shape:
        size *= s
    return (t.arange(size, dtype=t.float64) * 0.5 + start).reshape(shape).requires_grad_()


def inplace_on_row(t):
    x = leaf(t, 3, 4)
    y = x * 2
    y[1].mul_(3)
    y.sum().backward()
    return y, x.grad


def inplace_on_slice_of_slice(t):
    x = leaf(t, 4, 5)
    y = x * 2
    y[1:][:, 2:][0].exp_()
    y.prod().backward()
    return y, x.grad


def inplace_on_transposed_view(t):
    x = leaf(t, 3, 4)
    y = x * 1
    y.t()[1].mul_(x.sum())
    (y * y).sum().backward()
    return y, x.grad


def view_made_before_base_changes(t):
    x = leaf(t, 4)
    y = x * 2
    v = y[:2]
    y.mul_(y.detach() + 1)
    (v * 3).sum().backward()
    return v, x.grad, v.requires_grad


def sibling_view_sees_change(t):
    x = leaf(t, 6)
    y = x * 1
    a, b = y[:4], y[2:]
    a.mul_(5)
    (b**2).sum().backward()
    return b, x.grad


def chained_views(t):
    x = leaf(t, 2, 3, 4)
    y = x.clone()
    y.view(6, 4)[::2].permute(1, 0)[1:3].add_(x.sum())
    (y**2).sum().backward()
    return y, x.grad


def untracked_base_becomes_tracked(t):
    w = leaf(t, 3)
    base = t.zeros(4, 3, dtype=t.float64)
    view = base[1]
    base[2] = w * 2
    base[1].add_(w)
    (view * base[2]).sum().backward()
    return base, view, w.grad, base.requires_grad, view.requires_grad


def inplace_on_view_of_untracked_base(t):
    w = leaf(t, 3)
    base = t.ones(2, 3, dtype=t.float64)
    base[0].mul_(w)
    (base**2).sum().backward()
    return base, w.grad, base.is_leaf


def reshape_then_inplace(t):
    x = leaf(t, 2, 6)
    y = x * 2
    z = y.reshape(3, 4)
    z[1:].sqrt_()
    (y * x).sum().backward()
    return y, x.grad


def unsqueeze_expand_read(t):
    x = leaf(t, 3)
    y = x.clone()
    e = y.unsqueeze(0).expand(4, 3)
    y.mul_(2)
    (e * e).sum().backward()
    return e, x.grad


def copy_into_slice(t):
    x, z = leaf(t, 5), leaf(t, 2, start=7.0)
    y = x * 3
    y[1:3].copy_(z)
    (y**2).sum().backward()
    return y, x.grad, z.grad


def fill_and_zero(t):
    x = leaf(t, 5)
    y = x * 3
    y[0].fill_(2.5)
    y[3:].zero_()
    (y**2).sum().backward()
    return y, x.grad


def setitem_number_and_tensor(t):
    x = leaf(t, 3, 4)
    y = x * 1
    y[0] = 5
    y[:, 1] = x[:, 0] * 2
    y[1, 2] = x[0, 0]
    (y**2).sum().backward()
    return y, x.grad


def setitem_mask(t):
    x = leaf(t, 3, 4)
    y = x * 1
    y[y > 3] = 0.5
    (y**3).sum().backward()
    return y, x.grad


def setitem_mask_tensor(t):
    x, v = leaf(t, 4), leaf(t, 2, start=9.0)
    y = x * 1
    y[t.tensor([True, False, True, False])] = v
    (y**3).sum().backward()
    return y, x.grad, v.grad


def setitem_index_tensor_mixed(t):
    x, v = leaf(t, 3, 4, 5), leaf(t, 2, 3, start=9.0)
    y = x * 1
    y[:, t.tensor([0, 2]), 1] = v.t()
    (y**2).sum().backward()
    return y, x.grad, v.grad


def setitem_index_then_slice(t):
    x, v = leaf(t, 4, 3), leaf(t, 2, start=2.0)
    y = x * 1
    y[t.tensor([3, 1]), 1:2] = v.unsqueeze(1)
    (y**2).sum().backward()
    return y, x.grad, v.grad


def setitem_broadcast_leading_ones(t):
    x = leaf(t, 3, 4)
    y = x * 1
    y[0] = t.ones(1, 1, 4, dtype=t.float64)
    (y**2).sum().backward()
    return y, x.grad


def setitem_through_view(t):
    x = leaf(t, 4, 3)
    y = x * 1
    y.t()[0, 1:3] = y[2, :2] * 3
    (y**2).sum().backward()
    return y, x.grad


def setitem_on_leaf_fails(t):
    x = leaf(t, 3)
    x[0] = 1


def inplace_on_leaf_fails(t):
    leaf(t, 3).add_(1)


def inplace_on_view_of_leaf_fails(t):
    leaf(t, 3)[0].add_(1)


def inplace_on_leaf_without_grad(t):
    x = leaf(t, 3)
    with t.no_grad():
        x.add_(1)
        x[0] = 7
    (x**2).sum().backward()
    return x, x.grad, x.is_leaf


def modified_after_save_fails(t):
    x = leaf(t, 3)
    y = x.exp()
    z = y * 2 * y
    y.add_(1)
    z.sum().backward()


def output_modified_after_save_fails(t):
    x = leaf(t, 3)
    y = x.exp()
    y.mul_(2)
    y.sum().backward()


def inplace_after_unsaved_use_is_fine(t):
    x = leaf(t, 3)
    y = x + 1
    z = y + 2
    y.mul_(3)
    (z + y).sum().backward()
    return x.grad


def inplace_chain(t):
    x = leaf(t, 3)
    y = x * 2
    y.add_(1).mul_(x).sub_(2).div_(3).neg_().pow_(3)
    y.sum().backward()
    return y, x.grad


def inplace_saves_its_output(t):
    x = leaf(t, 3)
    y = x * 0.1
    y.exp_().tanh_().sigmoid_().sqrt_()
    y.sum().backward()
    return y, x.grad


def inplace_relu_clamp(t):
    x = leaf(t, 6, start=-1.2)
    y = x * 2
    y.relu_().clamp_(max=1.5)
    y.sum().backward()
    return y, x.grad


def inplace_operators(t):
    x = leaf(t, 3)
    y = x * 2
    z = y
    y += x
    y *= 3
    y -= 1
    y /= x
    y **= 2
    y.sum().backward()
    return y is z, y, x.grad


def inplace_with_broadcast(t):
    x, w = leaf(t, 3, 4), leaf(t, 4)
    y = x * 1
    y.mul_(w).add_(w[0])
    y.sum().backward()
    return x.grad, w.grad


def inplace_broadcast_of_self_fails(t):
    y = leaf(t, 3) * 1
    y.add_(t.ones(2, 3, dtype=t.float64))


def inplace_dtype_fails(t):
    t.arange(3).add_(0.5)


def inplace_integer_division_fails(t):
    t.arange(3).div_(2)


def inplace_integer_by_bool(t):
    x = t.arange(3)
    return x.add_(t.tensor([True, False, True])), x


def inplace_float_by_integer(t):
    x = t.ones(3)
    return x.mul_(t.arange(3)), x


def expanded_inplace_fails(t):
    t.zeros(1, 3).expand(4, 3).add_(1)


def expanded_row_set(t):
    x = t.zeros(1, 3).expand(4, 3)
    x[0] = 1.0
    return x


def memory_is_shared(t):
    x = t.zeros(2, 3)
    x[1].add_(1)
    x.t()[2].fill_(5)
    x.view(-1)[0] = 9
    x.reshape(3, 2)[1] = 4
    x.unbind(0)[0].add_(0.5)
    x.split(1, 1)[1].mul_(2)
    x.chunk(2)[1].sub_(1)
    x.unsqueeze(0).squeeze().narrow(0, 0, 1).add_(100)
    x.detach()[1, 1] = -7
    x.data[1, 2] = -8
    return x


def versions(t):
    x = t.zeros(3)
    y = x.view(3)
    found = [x._version]
    x.add_(1)
    found.append((x._version, y._version))
    y[0] = 2
    found.append((x._version, y._version))
    z = x.detach()
    z.mul_(2)
    found.append((x._version, z._version))
    with t.no_grad():
        x.zero_()
    found.append(x._version)
    found.append(x.clone()._version)
    return found


def base_and_is_view(t):
    x = leaf(t, 4)
    y = x * 1
    v = y[1:]
    w = v[1:]
    return v._base is y, w._base is y, v._is_view(), y._is_view(), y._base is None


def detach_shares_and_detach_inplace(t):
    x = leaf(t, 3)
    y = x * 2
    d = y.detach()
    y.detach_()
    return d.requires_grad, y.requires_grad, y.is_leaf, y.grad_fn is None


def second_order_of_what_was_detached_inplace_fails(t):
    x = leaf(t, 3)
    y = x * 1
    made = y * y
    y.detach_()
    t.autograd.grad(made.sum(), x, create_graph=True)


def other_memory_is_another_version(t):
    x, y = t.rand(4), t.rand(4)
    y += 1
    found = [x.resize_(2)._version, x.resize_(2)._version, x.resize_(8)._version]
    found += [x.set_(y)._version, x.set_()._version, x.set_(y.untyped_storage(), 0, (2,))._version]
    y += 1
    return [*found, x._version, y._version]


def a_saved_tensor_with_other_memory_fails(t):
    x, y = leaf(t, 3), t.ones(3, dtype=t.float64)
    made = x * y
    y.set_(t.zeros(3, dtype=t.float64))
    made.sum().backward()


def detach_inplace_of_view_fails(t):
    (leaf(t, 3) * 2)[0].detach_()


def no_grad_view_then_inplace_fails(t):
    y = leaf(t, 3) * 1
    with t.no_grad():
        v = y.view(-1)
    v.add_(1)


def no_grad_inplace_on_nonleaf_view(t):
    x = leaf(t, 4)
    y = x * 2
    with t.no_grad():
        y[0].mul_(10)
    (y + 1).sum().backward()
    return y, x.grad


def retain_grad_moves_with_inplace(t):
    x = leaf(t, 3)
    y = x * 2
    y.retain_grad()
    y.mul_(3)
    (y * 2).sum().backward()
    return x.grad, y.grad


def double_backward_through_copy_slices(t):
    x = leaf(t, 2, 3)
    y = x * 1
    y[0].mul_(x[1])
    (g,) = t.autograd.grad((y**2).sum(), x, create_graph=True)
    (h,) = t.autograd.grad((g**2).sum(), x)
    return g, h


def inplace_where_both_need_grad(t):
    x, w = leaf(t, 3), leaf(t, 3, start=4.0)
    y = x * 1
    y.mul_(w)
    w2 = w * y
    w2.sum().backward()
    return x.grad, w.grad


def index_put_accumulate(t):
    x, v = leaf(t, 4), leaf(t, 3, start=2.0)
    y = x * 1
    y.index_put_((t.tensor([0, 0, 2]),), v, accumulate=True)
    (y**2).sum().backward()
    return y, x.grad, v.grad


def scatter_and_index_add(t):
    x, v = leaf(t, 4, 3), leaf(t, 2, 3, start=2.0)
    y = x * 1
    y.index_add_(0, t.tensor([1, 1]), v)
    y.scatter_add_(0, t.tensor([[0, 1, 2]]), v[:1])
    y.masked_fill_(y > 6, 0.0)
    (y**2).sum().backward()
    return y, x.grad, v.grad


def swap_in_place(t):
    x = leaf(t, 4)
    y = x * 1
    y[0], y[3] = y[3].clone(), y[0].clone()
    (y * t.arange(4)).sum().backward()
    return y, x.grad


def inplace_view_methods(t):
    x = t.zeros(2, 1, 3)
    shapes = [tuple(x.squeeze_(1).shape), tuple(x.unsqueeze_(0).shape), tuple(x.transpose_(0, 2).shape)]
    y = t.ones(2, 3)
    shapes.append(tuple(y.t_().shape))
    return shapes


def requires_grad_set_on_view_of_untracked(t):
    x = t.zeros(4)
    v = x[:2]
    v.requires_grad_()
    (v * 3).sum().backward()
    return v.grad, x.requires_grad


def data_assignment(t):
    x = leaf(t, 3)
    x.data = t.ones(2, dtype=t.float64)
    (x * 2).sum().backward()
    return x, x.grad


def add_to_gradient_in_place(t):
    x = leaf(t, 3)
    (x * 2).sum().backward()
    g = x.grad
    (x * 3).sum().backward()
    return g is x.grad, g


def complex_slice(t):
    x = leaf(t, 4)
    y = t.complex(x, x * 2) if hasattr(t, "complex") else x
    return (y * y).abs() if hasattr(t, "complex") else y * y


PROGRAMS = [
    v
    for k, v in list(globals().items())
    if callable(v) and k not in ("leaf", "pytest") and v.__module__ == __name__
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_views_and_inplace_changes_are_torchs(program, parity):
    parity(program)


def test_a_view_that_turned_into_another_follows_its_base():
    leaf = tenon.arange(6.0, dtype=tenon.float64, requires_grad=True)
    base = leaf.clone()
    view = base.view(2, 3)
    view.t_()
    base.mul_(2)

    (view * tenon.arange(6.0, dtype=tenon.float64).reshape(3, 2)).sum().backward()

    assert view.shape == (3, 2)
    assert leaf.grad.tolist() == [0.0, 4.0, 8.0, 2.0, 6.0, 10.0]


def test_views_that_cannot_take_a_history_do_not_turn_into_others():
    base = tenon.ones(2, 3, requires_grad=True).clone()
    with tenon.no_grad():
        view = base.view_as(base)
    with tenon.inference_mode():
        made = tenon.ones(2, 3, requires_grad=True)
        made.t_()

    assert made.shape == (3, 2) and made.requires_grad
    with pytest.raises(ViewError, match="A view was created in no_grad mode and is being modified"):
        view.t_()
    with pytest.raises(GradError, match="Inplace update to inference tensor"):
        made.t_()


def test_what_saved_a_tensor_sees_that_it_was_turned_in_place():
    x = tenon.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    y = x.clone()
    cube = (y * y * y).sum()

    y.t_()

    assert y._version == 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        tenon.autograd.grad(cube, x, create_graph=True)
    (y * y).sum().backward()
    assert x.grad.tolist() == [[2.0, 4.0], [6.0, 8.0]]


@pytest.mark.oracle
@pytest.mark.parametrize("module", ["tenon", "torch"])
@pytest.mark.parametrize("leaf", [True, False])
def test_a_view_made_untaped_is_of_no_use_once_it_was_modified(module, leaf):
    t = pytest.importorskip(module)
    base = t.ones(2, requires_grad=True)
    base = base if leaf else base.clone()
    with t.no_grad():
        view = base[:]
        view.mul_(2)
        assert (view + 1).tolist() == [3, 3]

    assert repr(view) == "tensor([2., 2.], grad_fn=<Invalid>)"
    assert view.requires_grad
    for use in (lambda: view.grad_fn, lambda: view.is_leaf, lambda: view * 2):
        with pytest.raises(RuntimeError, match="created in no_grad mode and its base or another view"):
            use()
