"""Clusters whose last values depend on a sum over all rows and on a reduction along a row."""

import tenon
import tenon.nn.functional as F


def test_second_derivatives_of_cross_entropy_can_be_compiled():
    tenon.manual_seed(0)
    x, target = tenon.randn(4, requires_grad=True), tenon.rand(4, requires_grad=True)
    weights = tenon.tensor([1.0, 0.5, -0.4, -1.0])

    def step(x, target):
        loss = F.cross_entropy(x, target)
        first = tenon.autograd.grad(loss, [x, target], create_graph=True)
        total = sum((g * weights).sum() for g in first)
        return [loss, *first, *tenon.autograd.grad(total, [x, target], create_graph=True)]

    compiled = tenon.compile(step)
    for _ in range(4):
        found = compiled(x, target)

    for a, b in zip(found, step(x, target), strict=True):
        assert tenon.allclose(a, b, atol=1e-6)
