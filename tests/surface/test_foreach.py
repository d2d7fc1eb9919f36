"""``torch._foreach_*``: one operation for all tensors of a list, as PyTorch's."""

import pytest

from tenon.functions import foreach

ALONE = foreach._UNARY


def lists(t, count=2):
    made = [[t.tensor([0.25, 0.5, 0.75]) * n + 0.125, t.tensor([[0.5 * n]])] for n in range(1, count + 1)]
    return [[x.requires_grad_() for x in row] for row in made]


def with_gradients(made, *rows):
    sum(x.sum() for x in made if x.requires_grad).backward()
    return list(made), [x.grad for row in rows for x in row]


def test_each_tensor_alone(parity):
    for name in [*ALONE, "clone", "max", "norm"]:

        def program(t, name=name):
            (row,) = lists(t, 1)
            return with_gradients(getattr(t, f"_foreach_{name}")(row), row)

        parity(program)


def test_each_tensor_alone_in_place(parity):
    for name in [*ALONE, "zero"]:

        def program(t, name=name):
            (row,) = lists(t, 1)
            row = [x.detach() for x in row]
            assert getattr(t, f"_foreach_{name}_")(row) is row
            return row, [x._version for x in row]

        parity(program)


@pytest.mark.parametrize("name", [*foreach._BINARY, "maximum", "minimum"])
def test_a_second_operand_is_a_number_numbers_or_tensors(parity, name):
    for second in (lambda t, row: 2, lambda t, row: [3, 0.5], lambda t, row: row):

        def program(t, second=second):
            row, other = lists(t)
            operand = second(t, other)
            made = with_gradients(getattr(t, f"_foreach_{name}")(row, operand), row)
            inplace = [x.detach().clone() for x in row]
            getattr(t, f"_foreach_{name}_")(inplace, operand if operand is not other else made[0])
            return made, inplace

        parity(program)


def test_factors_shares_and_powers(parity):
    parity(lambda t: t._foreach_pow(2, lists(t, 1)[0]))
    parity(lambda t: t._foreach_add(*lists(t), alpha=3))
    parity(lambda t: t._foreach_mul(lists(t, 1)[0], t.tensor(2.0)))
    parity(lambda t: t._foreach_sub(lists(t, 1)[0], scalar=2))
    parity(lambda t: t._foreach_norm(lists(t, 1)[0], float("inf"), dtype=t.float64))
    parity(lambda t: t._foreach_copy_([x.detach() for x in lists(t, 1)[0]], lists(t)[1]))
    parity(lambda t: t._foreach_mm([t.ones(2, 3)], [t.ones(3, 2)]))
    for weight in (lambda t: 0.25, lambda t: [0.25, 2], lambda t: lists(t, 1)[0]):
        parity(lambda t, weight=weight: t._foreach_lerp(*lists(t), weight(t)))
    for value in (lambda t: 3, lambda t: [3, 0.5], lambda t: t.tensor([3, 0.5])):
        for name in ("_foreach_addcmul", "_foreach_addcdiv"):
            parity(lambda t, name=name, value=value: getattr(t, name)(*lists(t, 3), value(t)))


def test_lists_that_do_not_fit_are_refused(parity):
    parity(lambda t: t._foreach_abs([]), match="at least one tensor")
    parity(lambda t: t._foreach_add(lists(t, 1)[0], [t.ones(1)]), match="same number of tensors, got 2 and 1")
    parity(lambda t: t._foreach_add(lists(t, 1)[0], [1]), match="same number of elements as scalar list")
    parity(lambda t: t._foreach_mul(lists(t, 1)[0], t.ones(2)), match="0 dim but it has 1 dimensions")
    parity(lambda t: t._foreach_addcmul(*lists(t, 3), t.tensor(1.0)), match="of dimension 1. Got 0 instead")
    parity(lambda t: t._foreach_addcmul(*lists(t, 3), t.ones(1)), match="input of length 2 but got 1 instead")
    parity(lambda t: t._foreach_neg(t.ones(2)), match="must be tuple of Tensors, not Tensor")
    parity(lambda t: t._foreach_abs([1]), match="expected Tensor as element 0")
    parity(lambda t: t._foreach_mul(lists(t, 1)[0], 2, alpha=2))
    parity(lambda t: t._foreach_div_([t.ones(2, dtype=t.int64)], 2), match="can't be cast to")
    parity(lambda t: t._foreach_max([t.ones(0)]), match="")
