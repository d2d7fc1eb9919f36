"""An output of a fused call overwrites only operands that it is computed from."""

import numpy as np

import tenon
from tenon.graph.cluster import Builder
from tenon.graph.fused import fused


def test_an_output_may_overwrite_what_it_is_computed_from():
    builder = Builder()
    x, y = builder.input((4,), np.float32), builder.input((4,), np.float32)
    cluster = builder.build([x * 2.0, x + y, y])

    assert [list(fused.replaceable(i, cluster=cluster)) for i in range(3)] == [[0], [0, 1], [1]]


def test_gradients_of_a_compiled_scatter_reduce_are_the_eager_ones():
    tenon.manual_seed(0)
    x, index = tenon.randn(5, 3, requires_grad=True), tenon.randint(0, 3, (5, 4))
    source = tenon.randn(5, 6, requires_grad=True)

    def function(x, index, source):
        return x.scatter_reduce(1, index, source, "prod", include_self=False)

    compiled = tenon.compile(function)
    for _ in range(5):
        found = tenon.autograd.grad(compiled(x, index, source).sum(), [x, source])

    assert compiled.programs
    for a, b in zip(found, tenon.autograd.grad(function(x, index, source).sum(), [x, source]), strict=True):
        assert tenon.allclose(a, b)
        assert b.abs().sum() > 0
