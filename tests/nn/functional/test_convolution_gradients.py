"""``nn.grad``: the gradients of convolutions, asked for by themselves."""

from __future__ import annotations

import pytest

import tenon
from tenon.nn import functional as F
from tenon.nn import grad


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("options", [{}, {"stride": 2, "padding": 1, "groups": 2}, {"dilation": 2}])
def test_they_are_what_backward_computes(rng, rank, options):
    groups = options.get("groups", 1)
    x = tenon.from_numpy(rng.standard_normal((2, 4, *[7] * rank))).requires_grad_()
    weight = tenon.from_numpy(rng.standard_normal((6, 4 // groups, *[3] * rank))).requires_grad_()
    out = getattr(F, f"conv{rank}d")(x, weight, None, **options)
    g = tenon.from_numpy(rng.standard_normal(tuple(out.shape)))

    of_x, of_weight = tenon.autograd.grad(out, (x, weight), g)

    assert tenon.allclose(getattr(grad, f"conv{rank}d_input")(x.shape, weight, g, **options), of_x)
    assert tenon.allclose(getattr(grad, f"conv{rank}d_weight")(x, weight.shape, g, **options), of_weight)


def test_they_have_gradients_themselves():
    x = tenon.ones(1, 1, 4, 4, dtype=tenon.float64, requires_grad=True)
    g = tenon.ones(1, 1, 3, 3, dtype=tenon.float64, requires_grad=True)

    assert tenon.autograd.gradcheck(lambda a, b: grad.conv2d_weight(a, (1, 1, 2, 2), b), (x, g))


def test_no_channels_in_are_none_out_as_in_torch():
    x, weight, bias = (tenon.ones(*s, requires_grad=True) for s in ((2, 0, 8), (12, 0, 3), (12,)))

    out = F.conv1d(x, weight, bias, stride=2)
    out.sum().backward()

    assert out.shape == (2, 0, 3)
    assert [v.grad.shape for v in (x, weight)] == [x.shape, weight.shape]
    assert bias.grad.tolist() == [0.0] * 12
    assert F.conv2d(tenon.ones(0, 5, 5), tenon.ones(4, 0, 3, 3)).shape == (0, 3, 3)
