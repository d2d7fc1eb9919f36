"""A plugin whose package was renamed: imports and checkpoints name the old one."""

from __future__ import annotations

import importlib
import sys

import pytest

import tenon
from tenon.errors import PluginModuleError, PluginWarning

PLUGIN = """
from tenon.extend import hookimpl

FORMER_NAMES = {"tenon_menagerie": "tenon.zoo"}
loaded = []

@hookimpl
def tenon_namespaces():
    return {"zoo": "tenon_zoo.animals"}

@hookimpl
def tenon_checkpoint_load(section, session):
    loaded.append(section)
"""
FILES = {
    "tenon_zoo/__init__.py": "",
    "tenon_zoo/plugin.py": PLUGIN,
    "tenon_zoo/animals/__init__.py": "from tenon_zoo.animals import lion as lion",
    "tenon_zoo/animals/lion.py": "class Lion: pass",
}


@pytest.fixture
def zoo(install, fresh_host):
    install("tenon-zoo", {"zoo": "tenon_zoo.plugin"}, FILES)
    yield fresh_host()
    mine = ("tenon.zoo", "tenon_zoo", "tenon_menagerie")
    for name in [name for name in sys.modules if name.startswith(mine)]:
        del sys.modules[name]


def test_modules_are_imported_by_their_former_names(zoo):
    zoo.load()

    former = importlib.import_module("tenon_menagerie.lion")

    assert former is importlib.import_module("tenon.zoo.lion")
    assert former.Lion.__module__ == "tenon.zoo.lion"


def test_sections_of_checkpoints_under_former_names_are_handed_over(zoo):
    zoo.load()
    loaded = importlib.import_module("tenon_zoo.plugin").loaded

    zoo.load_sections({"tenon_menagerie": {"age": 3}}, None)
    zoo.load_sections({"zoo": {"age": 4}, "tenon_menagerie": {"age": 3}}, None)

    assert loaded == [{"age": 3}, {"age": 4}]


def test_package_that_never_was_is_not_found(zoo):
    zoo.load()

    with pytest.raises(ModuleNotFoundError, match="tenon_aquarium"):
        importlib.import_module("tenon_aquarium")


@pytest.mark.parametrize("name", ["prune", "quantization", "compress"])
def test_module_of_a_disabled_plugin_says_what_to_enable(fresh_host, monkeypatch, name):
    for known in [known for known in sys.modules if known.startswith(f"tenon.{name}")]:
        monkeypatch.delitem(sys.modules, known)
    monkeypatch.delitem(vars(tenon), name, raising=False)
    fresh_host(disable_plugins=("tenon_compress",)).load()

    with pytest.raises(PluginModuleError, match=r"tenon_compress.*\n.*TENON_PLUGINS"):
        importlib.import_module(f"tenon.{name}")


def test_former_name_in_a_setting_is_advised_on(fresh_host):
    with pytest.warns(PluginWarning, match="TENON_DISABLE_PLUGINS names 'tenon_quantize'"):
        fresh_host(disable_plugins=("tenon_quantize",)).load()
