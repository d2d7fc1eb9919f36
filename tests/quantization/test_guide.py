"""The code in the guide to quantization and in docstrings runs as it stands, and its plugin works."""

import doctest
import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import tenon
from tenon import nn
from tenon.plugins.manager import host
from tenon.quantization import structure, training

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "quantization.md"


def test_the_code_in_the_guide_runs_and_its_scheme_quantizes_saves_and_loads(monkeypatch, tmp_path):
    tenon.manual_seed(0)
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.S)
    assert len(blocks[-1].strip().splitlines()) <= 30
    names = {"__name__": "guide"}
    for block in blocks:
        exec(compile(block, GUIDE.name, "exec"), names)
    for module in ("tenon_ternary", "tenon_ternary.scheme"):
        made = types.ModuleType(module)
        made.__dict__.update(names)
        monkeypatch.setitem(sys.modules, module, made)
    plugin = types.ModuleType("guide_plugin")
    plugin.tenon_quantizers = names["tenon_quantizers"]
    host().register(plugin, "guide")
    try:
        model, x = nn.Sequential(nn.Linear(12, 6), nn.ReLU(), nn.Linear(6, 2)), tenon.randn(3, 12)
        small = tenon.quantize(model, "ternary").model
        tenon.save(small.state_dict(), tmp_path / "small.pt")
        loaded = tenon.compress.load(model, tenon.load(tmp_path / "small.pt"))

        np.testing.assert_array_equal(loaded(x).detach().numpy(), small(x).detach().numpy())
        assert all(len(row.unique()) <= 3 for row in small[0].weight)
    finally:
        host().unregister(plugin)


@pytest.mark.parametrize("module", [structure, training])
def test_docstrings_run(module):
    assert doctest.testmod(module).failed == 0
