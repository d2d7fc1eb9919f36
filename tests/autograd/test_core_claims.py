"""PyTorch's own tests of autograd, in both libraries: one program for each tested property."""

from __future__ import annotations

import pytest

import tenon
from tenon.errors import GradError, ModifiedValueError


def leaf(t, *values):
    return t.tensor(values or (1.0, 2.0, 3.0, 4.0), requires_grad=True)


def places(t):
    return t.tensor([0, 1])


def then_changed(make):
    """``make(t, x, i)``, whose index tensor changes before the backward pass."""

    def program(t):
        x, i = leaf(t), places(t)
        y = make(t, x, i)
        i.add_(1)
        y.sum().backward()

    return program


def assigned(t, x, i):
    y = x * 2
    y[i] = t.ones(2)
    return y


INDEXED = {
    "index": lambda t, x, i: x[i],
    "index with a slice": lambda t, x, i: x.reshape(2, 2)[:, i[:1] * 0] * x.reshape(2, 2)[i],
    "index_select": lambda t, x, i: x.index_select(0, i),
    "gather": lambda t, x, i: x.gather(0, i),
    "index_add": lambda t, x, i: t.zeros(4).index_add(0, i, x[:2]),
    "index_put": lambda t, x, i: t.zeros(4).index_put((i,), x[:2]),
    "assignment": assigned,
}


@pytest.mark.oracle
@pytest.mark.parametrize("make", INDEXED.values(), ids=INDEXED)
def test_an_index_tensor_changed_in_place_is_noticed(parity, make):
    parity(then_changed(make), "modified by an inplace operation")


def test_an_index_tensor_of_inference_mode_is_refused():
    with tenon.inference_mode():
        i = places(tenon)

    with pytest.raises(GradError, match="Inference tensors cannot be saved for backward"):
        leaf(tenon)[i]
    assert tenon.ones(4)[i].tolist() == [1, 1]


def test_a_list_or_an_array_as_an_index_is_copied_when_it_is_read():
    positions = [0, 1]
    x = leaf(tenon)
    y = x[positions]
    positions[0] = 3
    y.sum().backward()

    assert x.grad.tolist() == [1, 1, 0, 0]


def complex_leaf(t):
    return t.tensor([1 + 2j, 3 - 1j], requires_grad=True)


def gradient_of(make):
    def program(t):
        x = complex_leaf(t)
        make(x).sum().backward()
        return x.grad

    return program


COMPLEX = {
    "times a number": lambda x: (x * (2 + 1j)).real,
    "a number times": lambda x: ((2 + 1j) * x).imag,
    "over a number": lambda x: (x / (2 + 1j)).real,
    "a number over": lambda x: ((2 + 1j) / x).real,
    "times its conjugate": lambda x: (x * x.conj()).real,
    "square": lambda x: (x * x).real,
    "power": lambda x: (x ** (2 + 1j)).real,
}


@pytest.mark.oracle
@pytest.mark.parametrize("make", COMPLEX.values(), ids=COMPLEX)
def test_gradients_of_complex_arithmetic(parity, make):
    parity(gradient_of(make))


@pytest.mark.oracle
def test_a_complex_scalar_has_no_implicit_gradient(parity):
    parity(lambda t: complex_leaf(t).sum().backward(), "implicitly created only for real scalar outputs")


@pytest.mark.oracle
def test_retained_gradients_add_up_in_new_tensors(parity):
    def program(t):
        y = leaf(t) * 2
        y.retain_grad()
        y.sum().backward(retain_graph=True)
        first = y.grad
        y.sum().backward()
        return first, y.grad

    parity(program)


def test_backward_refuses_inputs_that_need_no_gradient():
    x = leaf(tenon)

    with pytest.raises(GradError, match=r"does not require grad: number 1, of shape \[2\]"):
        (x * 2).sum().backward(inputs=[x, tenon.ones(2)])
    assert x.grad is None


def batched(**options):
    def program(t):
        x, unused = leaf(t), leaf(t)
        y = x * x
        rows = t.autograd.grad(
            [y, x * 3],
            [x, unused],
            [t.eye(4), t.ones(4, 4)],
            is_grads_batched=True,
            allow_unused=True,
            **options,
        )
        return rows[0].detach(), rows[0].requires_grad, rows[1] is None

    return program


@pytest.mark.oracle
@pytest.mark.parametrize("options", [{}, {"create_graph": True}, {"retain_graph": True}], ids=str)
def test_batched_gradients_are_those_of_single_passes(parity, options):
    parity(batched(**options))


def test_batched_gradients_free_the_graph_once_and_say_what_is_missing():
    x = leaf(tenon)
    y = x.exp()
    (rows,) = tenon.autograd.grad(y, x, tenon.eye(4), is_grads_batched=True)

    assert rows.shape == (4, 4) and not rows.requires_grad
    with pytest.raises(GradError, match="second time"):
        tenon.autograd.grad(y, x, tenon.ones(4))
    for wrong in (None, tenon.tensor(1.0), [tenon.ones(0, 4)]):
        with pytest.raises(GradError, match=r"first axes have one size|interpret the first dimension"):
            tenon.autograd.grad(x.exp(), x, wrong, is_grads_batched=True)


def test_reading_the_gradient_of_a_result_says_that_it_is_not_kept():
    y = leaf(tenon) * 2

    with pytest.warns(UserWarning, match="not a leaf Tensor is being accessed"):
        assert y.grad is None
    y.retain_grad()
    assert y.grad is None


@pytest.mark.oracle
def test_the_unused_tensor_is_named_by_its_place(parity):
    parity(
        lambda t: t.autograd.grad(leaf(t).sum(), [leaf(t)]), "The differentiated Tensor at index 0 appears"
    )


def test_a_view_made_in_inference_mode_says_so_when_it_is_changed():
    x = leaf(tenon) * 1
    with tenon.inference_mode():
        view = x.view(2, 2)

    with pytest.raises(
        RuntimeError, match="created in inference mode and is being modified inplace in normal"
    ):
        view.add_(1)


def test_the_error_of_a_changed_index_names_op_and_shape():
    x, i = leaf(tenon), places(tenon)
    y = x[i]
    i.zero_()

    with pytest.raises(
        ModifiedValueError, match=r"the input \[2\] of take is at version 1; expected version 0"
    ):
        y.sum().backward()


@pytest.mark.oracle
@pytest.mark.parametrize(("sizes", "match"), [((2,), "more than one value"), ((0,), "no values")], ids=str)
def test_the_truth_of_several_values_is_ambiguous(parity, sizes, match):
    parity(lambda t: bool(t.ones(sizes)), f"Boolean value of Tensor with {match} is ambiguous")
