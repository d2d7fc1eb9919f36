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
from tenon.quantization.static import Int8

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "quantization.md"


def test_the_code_in_the_guide_runs_and_its_plugins_quantize_save_and_load(monkeypatch, tmp_path):
    tenon.manual_seed(0)
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.S)
    assert all(len(block.strip().splitlines()) <= 30 for block in blocks[-2:])
    names, hooks = {"__name__": "guide"}, []
    for block in blocks:
        exec(compile(block, GUIDE.name, "exec"), names)
        hooks += [names.pop("tenon_quantizers")] if "tenon_quantizers" in names else []
    for module in ("tenon_ternary", "tenon_ternary.scheme", "tenon_trimmed", "tenon_trimmed.observer"):
        made = types.ModuleType(module)
        made.__dict__.update(names)
        monkeypatch.setitem(sys.modules, module, made)
    plugins = [types.ModuleType(f"guide_plugin_{n}") for n in range(len(hooks))]
    for plugin, hook in zip(plugins, hooks, strict=True):
        plugin.tenon_quantizers = hook
        host().register(plugin, plugin.__name__)
    try:
        model, x = nn.Sequential(nn.Linear(12, 6), nn.ReLU(), nn.Linear(6, 2)), tenon.randn(3, 12)
        small = tenon.quantize(model, "ternary").model
        tenon.save(small.state_dict(), tmp_path / "small.pt")
        loaded = tenon.compress.load(model, tenon.load(tmp_path / "small.pt"))

        np.testing.assert_array_equal(loaded(x).detach().numpy(), small(x).detach().numpy())
        assert all(len(row.unique()) <= 3 for row in small[0].weight)
        x = tenon.randn(2000, 12)
        steps = [
            tenon.quantize(model, Int8(observer=name), x).model[0].steps["x_step"]
            for name in ("Trimmed", "MinMax")
        ]
        assert len(plugins) == 2 and 0.5 < steps[0] / steps[1] < 0.95
    finally:
        for plugin in plugins:
            host().unregister(plugin)


@pytest.mark.parametrize("module", [structure, training])
def test_docstrings_run(module):
    assert doctest.testmod(module).failed == 0
