"""Module attributes that come from plugins."""

from __future__ import annotations

import subprocess
import sys
import threading
import types

import pytest

from tenon.errors import PluginNotFoundError, PluginTargetError, PluginWarning
from tenon.extend import hookimpl
from tenon.plugins.lazy import lazy_namespace


@pytest.fixture
def zoo(monkeypatch):
    module = types.ModuleType("tenon_test_zoo")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    module.__getattr__, module.__dir__ = lazy_namespace(module.__name__, kind="optimizers")
    module.keeper = "Ann"
    return module


class Cats:
    asked = 0

    @hookimpl
    def tenon_optimizers(self):
        Cats.asked += 1
        return {"Tiger": Cats, "Broken": "nowhere:Broken", "Decoder": "json:JSONDecoder"}


def test_name_becomes_an_ordinary_attribute_after_its_first_use(zoo, empty_host):
    empty_host.register(Cats(), "cats")
    assert "Decoder" not in vars(zoo)

    import json

    assert zoo.Decoder is json.JSONDecoder
    assert vars(zoo)["Decoder"] is json.JSONDecoder


def test_dir_lists_own_and_plugin_names_without_importing(zoo, empty_host):
    empty_host.register(Cats(), "cats")

    assert {"keeper", "Tiger", "Broken", "Decoder"} <= set(dir(zoo))


def test_unknown_name_is_an_attribute_error_that_suggests(zoo, empty_host):
    empty_host.register(Cats(), "cats")

    assert not hasattr(zoo, "Tigre")
    with pytest.raises(
        AttributeError, match=r"module 'tenon_test_zoo' has no attribute 'Tigre'.*mean 'Tiger'"
    ):
        _ = zoo.Tigre


def test_hasattr_finds_what_a_plugin_offers(zoo, empty_host):
    empty_host.register(Cats(), "cats")

    assert hasattr(zoo, "Tiger")


def test_missing_name_chains_the_failed_plugin(zoo, install, fresh_host):
    install("tenon-tiger", {"tiger": "tenon_tiger"}, {"tenon_tiger.py": "raise OSError('libroar.so')"})
    with pytest.warns(PluginWarning):
        fresh_host().load()

    with pytest.raises(PluginNotFoundError, match=r"libroar\.so") as caught:
        _ = zoo.Tiger

    assert isinstance(caught.value.__cause__, OSError)


def test_broken_target_is_an_import_error_with_its_reason(zoo, empty_host):
    empty_host.register(Cats(), "cats")

    with pytest.raises(PluginTargetError, match="nowhere:Broken"):
        _ = zoo.Broken
    assert "Broken" not in vars(zoo)


def test_private_names_never_reach_the_plugins(zoo, empty_host):
    empty_host.register(Cats(), "cats")
    Cats.asked = 0

    assert not hasattr(zoo, "__wrapped__")
    assert not hasattr(zoo, "_private")
    assert Cats.asked == 0


def test_name_goes_when_its_plugin_goes(zoo, empty_host):
    empty_host.register(Cats(), "cats")
    assert zoo.Tiger is Cats

    empty_host.unregister("cats")

    assert not hasattr(zoo, "Tiger")
    assert zoo.keeper == "Ann"


def test_name_set_by_the_user_survives_a_change_of_plugins(zoo, empty_host):
    empty_host.register(Cats(), "cats")
    _ = zoo.Tiger
    zoo.Tiger = "mine"

    empty_host.unregister("cats")

    assert zoo.Tiger == "mine"


def test_threads_see_the_same_object(zoo, empty_host):
    empty_host.register(Cats(), "cats")
    seen = []
    gate = threading.Barrier(8)

    def look():
        gate.wait()
        seen.append(zoo.Decoder)

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(seen) == 8 and len(set(seen)) == 1


def test_lazy_names_import_neither_plugins_nor_their_machinery_before_use():
    code = """
import sys
from tenon.plugins.lazy import lazy_namespace
module = sys.modules["__main__"]
module.__getattr__, module.__dir__ = lazy_namespace("__main__", kind="optimizers")
assert not hasattr(module, "__path__")
heavy = {"pluggy", "importlib.metadata", "rich", "click", "mpi4py", "cupy", "tensorboardX"}
print(sorted(heavy & set(sys.modules)), [name for name in sys.modules if name.startswith("tenon_")])
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert result.stdout == "[] []\n"


def test_extend_and_the_host_import_no_plugin_before_use():
    code = """
import sys
import tenon.extend, tenon.plugins.registry, tenon.plugins.diagnose, tenon.cli
heavy = {"rich", "mpi4py", "cupy", "tensorboardX", "numba", "torch"}
print(sorted(heavy & set(sys.modules)), [name for name in sys.modules if name.startswith("tenon_")])
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert result.stdout == "[] []\n"
