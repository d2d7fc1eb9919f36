"""The code in the guide to StableHLO runs as it stands."""

import re
from pathlib import Path

import pytest
from tests.plugins.target_stablehlo.programs import needs_jax

import tenon

pytestmark = [needs_jax, pytest.mark.slow]
GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "stablehlo.md"


def test_the_code_in_the_guide_runs(capsys):
    tenon.manual_seed(0)
    names = {"__name__": "guide"}
    for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.S):
        exec(compile(block, GUIDE.name, "exec"), names)

    with pytest.raises(TypeError, match=r"input 'input' is a list; it must be an array of float32 and shape"):
        names["compiled"]([[0.0]])
    assert "'optimizer.weight.exp_avg_sq', 'weight']" in capsys.readouterr().out
