"""``torch._masked_softmax`` and the other names under which PyTorch calls its softmax kernels."""

import pytest

import tenon


@pytest.mark.parametrize(
    "kind, size, seen",
    [(0, (5, 5), (1, 1, 5, 5)), (1, (2, 5), (2, 1, 1, 5)), (2, (2, 3, 5, 5), (2, 3, 5, 5))],
)
def test_masked_elements_are_zero_and_get_no_gradient(kind, size, seen):
    tenon.manual_seed(kind)
    x, mask = tenon.randn(2, 3, 5, 5, requires_grad=True), tenon.rand(size) < 0.5
    whole = mask.view(seen).expand(2, 3, 5, 5)
    left = x.detach().exp().masked_fill(whole, 0)

    made = tenon._masked_softmax(x, mask, 3, kind)
    (made * made).sum().backward()

    tenon.testing.assert_close(made.detach(), (left / left.sum(3, keepdim=True)).nan_to_num(0.0))
    assert not x.grad[whole].any() and not x.grad.isnan().any()


def test_other_masks_are_refused():
    x = tenon.randn(2, 3, 5, 5)

    with pytest.raises(RuntimeError, match=r"Mask should be a boolean tensor"):
        tenon._masked_softmax(x, tenon.zeros(5, 5), 3, 0)
    with pytest.raises(RuntimeError, match=r"should match input shape \[2, 3, 5, 5\]"):
        tenon._masked_softmax(x, tenon.zeros(5, 5).bool(), 3, 2)


def test_kernels_by_name():
    x = tenon.randn(3, 4, requires_grad=True)
    g = tenon.randn(3, 4)

    made = tenon._softmax(x, 1, False)
    made.backward(g)

    assert tenon.equal(made, x.softmax(1))
    tenon.testing.assert_close(tenon._softmax_backward_data(g, made.detach(), 1, tenon.float32), x.grad)
