"""What surprises people about tensors and gradients, and what tenon does."""

import numpy as np
import pytest

import tenon
from tenon.errors import ModifiedValueError, ViewError


def test_exchanging_data_after_the_forward_does_not_change_the_gradient():
    # torch silently uses the new data.
    x = tenon.tensor([2.0], requires_grad=True)
    w = tenon.tensor([3.0], requires_grad=True)
    y = x * w
    w.data = tenon.tensor([100.0])

    y.backward()

    assert x.grad.item() == 3.0


def test_only_the_needed_side_of_a_product_is_kept():
    frozen, x = tenon.ones(2), tenon.ones(2, requires_grad=True)
    hidden = x * 3
    y = hidden * frozen
    hidden.add_(1)  # frozen needs no gradient, so nobody reads hidden any more

    y.sum().backward()

    assert x.grad.tolist() == [3.0, 3.0]


def test_a_value_changed_in_place_after_it_was_saved_is_never_used():
    x = tenon.ones(2, requires_grad=True)
    h = x * 2
    y = h * h
    h.zero_()

    with pytest.raises(ModifiedValueError, match="clone"):
        y.sum().backward()


def test_writing_into_an_expanded_tensor_is_refused():
    with pytest.raises(ViewError, match="clone"):
        tenon.zeros(1, 3).expand(4, 3).add_(1)


def test_two_leaves_never_share_one_gradient():
    a, b = tenon.ones(2, requires_grad=True), tenon.ones(2, requires_grad=True)
    (a + b).sum().backward()
    a.grad.mul_(0)

    assert b.grad.tolist() == [1.0, 1.0]


def test_the_gradient_handed_to_backward_is_copied():
    x, g = tenon.ones(2, requires_grad=True), tenon.ones(2)
    x.backward(g)
    x.grad.mul_(5)

    assert g.tolist() == [1.0, 1.0]


def test_the_product_of_values_with_zeros_has_its_gradient():
    x = tenon.tensor([0.0, 2.0, 3.0], requires_grad=True)
    x.prod().backward()

    assert x.grad.tolist() == [6.0, 0.0, 0.0]


def test_the_running_product_of_values_with_zeros_has_its_gradient():
    x = tenon.tensor([2.0, 0.0, 3.0], requires_grad=True)
    x.cumprod(0).sum().backward()

    assert x.grad.tolist() == [1.0, 8.0, 0.0]


def test_powers_at_zero_have_no_nan_in_their_gradient():
    x = tenon.tensor([0.0, 0.0], requires_grad=True)
    (x ** tenon.tensor([2.0, 0.0])).sum().backward()

    assert x.grad.tolist() == [0.0, 0.0]


def test_relu_at_a_closed_gate_stops_an_infinite_gradient():
    x = tenon.tensor([-1.0], requires_grad=True)
    (x.relu() * float("inf")).sum().backward()

    assert x.grad.item() == 0.0


def test_ties_share_the_gradient_of_a_maximum():
    x = tenon.tensor([1.0, 1.0], requires_grad=True)
    x.amax().backward()

    assert x.grad.tolist() == [0.5, 0.5]


def test_an_integer_tensor_divided_becomes_float32_and_not_numpys_float64():
    assert (tenon.tensor([1, 2]) / 2).dtype is tenon.float32


def test_a_zero_dimensional_tensor_does_not_widen_one_with_dimensions():
    assert (tenon.ones(2) * tenon.tensor(2.0, dtype=tenon.float64)).dtype is tenon.float32


def test_a_numpy_scalar_does_not_widen_a_tensor():
    assert (tenon.ones(2) * np.float64(2)).dtype is tenon.float32


def test_a_list_of_lists_indexes_axis_by_axis():
    x = tenon.arange(12).reshape(3, 4)

    with pytest.warns(UserWarning, match="non-tuple sequence"):
        assert x[[[0, 1], [2, 3]]].tolist() == [2, 7]
    assert x[tenon.tensor([[0, 1], [2, 2]])].shape == (2, 2, 4)


def test_an_integer_before_an_index_array_does_not_move_the_axes_as_numpy_does():
    x = tenon.zeros(2, 3, 4)

    assert x[0, :, tenon.tensor([0, 1])].shape == (3, 2)


def test_iterating_a_tensor_gives_views_that_write_through():
    x = tenon.zeros(2, 2)
    for row in x:
        row += 1

    assert x.tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_gradients_without_elements_can_be_zeroed_by_hand():
    x = tenon.ones(2, 0, requires_grad=True)
    x.sum().backward()

    assert x.grad.zero_().shape == x.grad.fill_(1).shape == (2, 0)


def test_zero_grad_by_hand_in_place_keeps_the_object():
    x = tenon.ones(2, requires_grad=True)
    (x * 2).sum().backward()
    g = x.grad
    x.grad.zero_()
    (x * 3).sum().backward()

    assert x.grad is g
    assert g.tolist() == [3.0, 3.0]


def test_a_hook_on_a_leaf_used_twice_sees_the_whole_gradient_once():
    x, seen = tenon.ones(1, requires_grad=True), []
    x.register_hook(lambda g: seen.append(g.item()))
    (x * 2 + x * 3).sum().backward()

    assert seen == [5.0]


def test_gradients_of_a_row_write_leave_the_other_rows_alone():
    x, v = tenon.ones(3, 2, requires_grad=True), tenon.ones(2, requires_grad=True)
    y = x * 2
    y[1] = v
    (y * y).sum().backward()

    assert x.grad.tolist() == [[8.0, 8.0], [0.0, 0.0], [8.0, 8.0]]
    assert v.grad.tolist() == [2.0, 2.0]


def test_unneeded_gradients_are_not_computed():
    calls = []

    class Counted(tenon.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            calls.append(1)
            return g

    x, w = tenon.ones(2, requires_grad=True), tenon.ones(2, requires_grad=True)
    loss = (x * Counted.apply(w)).sum()

    tenon.autograd.grad(loss, x)

    assert calls == []


def test_anomaly_detection_names_op_module_and_line():
    class Root(tenon.nn.Module):
        def forward(self, x):
            return x.sqrt()

    class Net(tenon.nn.Module):
        def __init__(self):
            super().__init__()
            self.root = Root()

        def forward(self, x):
            return (self.root(x) * 0).sum()

    net = Net()
    with tenon.autograd.set_detect_anomaly(True), pytest.warns(UserWarning, match="SqrtBackward0"):
        loss = net(tenon.tensor([-1.0, 4.0], requires_grad=True))
        with pytest.raises(
            RuntimeError, match=r"SqrtBackward0.*op sqrt in module root[\s\S]*return x\.sqrt\(\)"
        ):
            loss.backward()


def test_an_interpolation_by_one_is_the_end_itself():
    x, end = tenon.randn(1000), tenon.randn(1000) * 1e3

    assert tenon.equal(x.lerp(end, 1.0), end)
    assert tenon.equal(x.lerp(end, 0.0), x)
