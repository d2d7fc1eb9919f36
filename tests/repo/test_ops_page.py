"""`docs/ops.md`, the page of ops that rules get as `f`."""

import importlib.util
from pathlib import Path

import numpy as np

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_up_to_date():
    specification = importlib.util.spec_from_file_location("build_ops", DOCS / "build_ops.py")
    build_ops = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(build_ops)

    assert build_ops.page() == (DOCS / "ops.md").read_text("utf-8"), "run python docs/build_ops.py"


def test_rules_call_ops_as_the_page_says():
    import tenon
    from tenon.extend import Optimizer

    class Centred(Optimizer):
        """Moves by the gradient without its mean."""

        defaults = {"lr": 1.0}

        def update(self, f, p, g, s, h):
            centred = g - f.sum(g, axes=(0,), keepdims=True) / g.shape[0]
            return p - h.lr * f.cast(centred, dtype=p.dtype), {}

    parameter = tenon.nn.Parameter(tenon.zeros(3))
    parameter.grad = tenon.tensor([1.0, 2.0, 6.0])
    Centred([parameter], {"lr": 1.0}).step()
    np.testing.assert_allclose(parameter.detach().numpy(), [2, 1, -3])
    np.testing.assert_allclose(tenon.ops.sum(tenon.ones(2, 3), axes=(0,)).numpy(), [2, 2, 2])
