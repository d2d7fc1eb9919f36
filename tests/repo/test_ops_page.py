"""`docs/ops.md`, the page of ops that rules get as `f`."""

import subprocess
import sys
from pathlib import Path

import numpy as np

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_up_to_date():
    code = "import build_ops; print(build_ops.page(), end='')"  # by itself: ops are also defined later
    done = subprocess.run([sys.executable, "-c", code], cwd=DOCS, capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stderr
    assert done.stdout == (DOCS / "ops.md").read_text("utf-8"), "run python docs/build_ops.py"


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
