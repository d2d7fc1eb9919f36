"""The code in the guides to parametrizations and pruning, and in docstrings, runs as it stands."""

import doctest
import re
import sys
import types
from pathlib import Path

import pytest

from tenon import nn
from tenon.nn.utils import parametrizations, parametrize, prune
from tenon.plugins.manager import host

GUIDES = Path(__file__).parents[2] / "docs" / "guide"


def run(page):
    blocks = re.findall(r"```python\n(.*?)```", (GUIDES / page).read_text(encoding="utf-8"), re.S)
    names = {"__name__": "guide"}
    for block in blocks:
        exec(compile(block, page, "exec"), names)
    return names


@pytest.mark.parametrize("page", ["parametrizations.md", "pruning.md"])
def test_the_code_in_the_guides_runs_and_its_plugin_works(page, monkeypatch):
    names = run(page)
    for module in ("tenon_symmetric.symmetric", "tenon_every_other.method"):
        package = module.partition(".")[0]
        monkeypatch.setitem(sys.modules, package, types.ModuleType(package))
        made = types.ModuleType(module)
        made.__dict__.update(names)
        monkeypatch.setitem(sys.modules, module, made)
    plugin = types.ModuleType("guide_plugin")
    plugin.__dict__.update(
        {n: f for n, f in names.items() if n in ("tenon_parametrizations", "tenon_pruners")}
    )
    host().register(plugin, "guide")
    try:
        layer = nn.Linear(4, 4)
        if page == "pruning.md":
            prune.EveryOther.apply(layer, "weight")
            assert (layer.weight[:, ::2] == 0).all()
        else:
            parametrizations.symmetric(layer)
            assert (layer.weight == layer.weight.T).all()
    finally:
        host().unregister(plugin)


@pytest.mark.parametrize("module", [parametrize, prune])
def test_docstrings_run(module):
    assert doctest.testmod(module).failed == 0
