"""Packages of plugins under public names: ``import tenon.zoo``."""

from __future__ import annotations

import importlib
import importlib.util
import pickle
import subprocess
import sys
import textwrap

import pytest

from tenon.config import process_environment
from tenon.errors import PluginClashError, PluginModuleError, PluginTargetError
from tenon.plugins import namespaces

PLUGIN = """
from tenon.extend import hookimpl

@hookimpl
def tenon_namespaces():
    return {"zoo": "tenon_zoo.animals", "nn.zoo": "tenon_zoo.layers"}
"""
ANIMALS = '''
"""Animals."""
from tenon_zoo.animals.cats import lion
from tenon_zoo.animals.cats.lion import Lion
from tenon_zoo.animals.keeper import feed, keeper

class Cage:
    """A cage."""
'''
LION = '''
from tenon_zoo.animals.keeper import feed

class Lion:
    """A lion."""

    def __eq__(self, other):
        return type(other) is Lion
'''
FILES = {
    "tenon_zoo/__init__.py": "",
    "tenon_zoo/plugin.py": PLUGIN,
    "tenon_zoo/layers.py": "class Roar: pass",
    "tenon_zoo/animals/__init__.py": ANIMALS,
    "tenon_zoo/animals/cats/__init__.py": "",
    "tenon_zoo/animals/cats/lion.py": LION,
    "tenon_zoo/animals/keeper.py": "def feed(): return 'fed'\ndef keeper(): return 'kept'",
    "tenon_zoo/animals/asleep.py": "class Sloth: pass",
}


@pytest.fixture
def zoo(install, fresh_host):
    install("tenon-zoo", {"zoo": "tenon_zoo.plugin"}, FILES)
    fresh_host()
    yield importlib.import_module("tenon.zoo")
    for name in [name for name in sys.modules if name.startswith(("tenon.zoo", "tenon.nn.zoo", "tenon_zoo"))]:
        del sys.modules[name]


def test_module_is_one_under_both_names(zoo):
    import tenon_zoo.animals

    import tenon

    assert zoo is tenon_zoo.animals is tenon.zoo
    assert zoo.__name__ == "tenon.zoo" and "tenon_zoo" in zoo.__file__


def test_definitions_say_the_public_name(zoo):
    assert zoo.Cage.__module__ == "tenon.zoo"
    assert repr(zoo.Lion) == "<class 'tenon.zoo.lion.Lion'>"
    assert zoo.feed.__module__ == "tenon.zoo.keeper"


def test_module_of_a_folder_is_imported_by_the_path_that_the_package_gives_it(zoo):
    import tenon_zoo.animals.cats.lion as own

    from tenon.zoo.lion import Lion

    assert own.Lion is Lion
    assert importlib.import_module("tenon.zoo.lion") is own


def test_module_that_is_not_loaded_yet_is_imported_once(zoo):
    assert "tenon_zoo.animals.asleep" not in sys.modules

    import tenon_zoo.animals.asleep as own

    from tenon.zoo.asleep import Sloth

    assert own.Sloth is Sloth and Sloth.__module__ == "tenon.zoo.asleep"
    assert own.__spec__.name == "tenon_zoo.animals.asleep"
    assert importlib.reload(own) is own


def test_pickle_names_the_public_path_and_one_of_the_own_path_loads(zoo):
    written = pickle.dumps(zoo.Lion(), protocol=0)

    assert b"tenon.zoo.lion" in written and b"tenon_zoo" not in written
    assert pickle.loads(written) == pickle.loads(
        written.replace(b"tenon.zoo.lion", b"tenon_zoo.animals.cats.lion")
    )


def test_function_keeps_its_name_when_the_module_of_that_name_is_imported(zoo):
    module = importlib.import_module("tenon.zoo.keeper")

    assert zoo.keeper() == "kept" and module.keeper is zoo.keeper


def test_namespace_may_be_below_a_module_of_tenon(zoo):
    import tenon.nn.zoo

    assert tenon.nn.zoo.Roar.__module__ == "tenon.nn.zoo"


def test_module_that_is_not_there_is_missing_under_the_public_name(zoo):
    assert importlib.util.find_spec("tenon.zoo.tapir") is None
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'tenon.zoo.tapir'"):
        importlib.import_module("tenon.zoo.tapir")
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'tenon.tapirs'"):
        importlib.import_module("tenon.tapirs")


def test_names_are_asked_for_again_when_plugins_change(zoo, empty_host):
    import tenon

    assert "tenon.zoo" not in sys.modules and not hasattr(tenon, "zoo")
    assert "tenon_zoo.animals" in sys.modules
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("tenon.zoo")


def test_module_of_tenon_cannot_be_replaced(install, fresh_host):
    plugin = PLUGIN.replace('"zoo"', '"amp"')
    install("tenon-zoo", {"zoo": "tenon_zoo.plugin"}, {**FILES, "tenon_zoo/plugin.py": plugin})
    fresh_host()

    assert not hasattr(importlib.import_module("tenon.amp"), "Lion")


def test_two_plugins_with_one_namespace_are_named(install, fresh_host):
    for name in ("tenon-zoo", "tenon-ark"):
        package = name.replace("-", "_")
        install(
            name, {name: f"{package}.plugin"}, {f"{package}/plugin.py": PLUGIN, f"{package}/__init__.py": ""}
        )
    fresh_host()

    with pytest.raises(PluginClashError, match=r"tenon-ark.*tenon-zoo"):
        importlib.import_module("tenon.zoo")


def test_package_that_fails_names_its_plugin(install, fresh_host):
    install("tenon-zoo", {"zoo": "tenon_zoo.plugin"}, {**FILES, "tenon_zoo/animals/__init__.py": "1 / 0"})
    fresh_host()

    with pytest.raises(
        PluginTargetError, match=r"'tenon_zoo.animals'.*'zoo' \(tenon-zoo 0.1\).*ZeroDivisionError"
    ):
        importlib.import_module("tenon.zoo")


def test_attribute_as_target_is_refused(install, fresh_host):
    plugin = PLUGIN.replace("tenon_zoo.animals", "tenon_zoo.animals:Cage")
    install("tenon-zoo", {"zoo": "tenon_zoo.plugin"}, {**FILES, "tenon_zoo/plugin.py": plugin})
    host = fresh_host()

    with (
        pytest.warns(
            Warning, match=r"'tenon_zoo.animals:Cage' is not the name of a module. Write 'package.module'"
        ),
        pytest.raises(ModuleNotFoundError),
    ):
        importlib.import_module("tenon.zoo")
    assert [failure.name for failure in host.failures] == ["zoo"]


def test_namespace_that_pytorch_has_says_what_to_do_where_no_plugin_provides_it(empty_host, monkeypatch):
    monkeypatch.setattr(namespaces, "PROVIDED", frozenset(["tenon.aquarium"]))

    with pytest.raises(
        PluginModuleError, match=r"(?s)tenon.aquarium comes from a plugin.*TENON_PLUGINS"
    ) as caught:
        importlib.import_module("tenon.aquarium")
    assert caught.value.name == "tenon.aquarium"


def test_new_process_imports_a_namespace_below_before_the_namespace_itself(install):
    root = install("tenon-zoo", {"zoo": "tenon_zoo.plugin"}, FILES)
    code = """
        import sys
        from tenon.zoo.lion import Lion
        import tenon
        assert tenon.zoo.Lion is Lion
        """
    environment = {**process_environment(), "PYTHONPATH": str(root)}

    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=environment, check=True)


#: What a process does for each namespace of PyTorch's that a plugin provides, and one after the other would not:
#: each in a process of its own, forked where tenon is imported. Prints the names of those that fail.
FOR_EACH = """
import os, sys, traceback
import tenon

assert "pluggy" not in sys.modules
for name in sys.argv[1:]:
    child = os.fork()
    if not child:
        status = 1
        try:
            check(name)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    if os.waitpid(child, 0)[1]:
        print(name)
"""


def namespaces_that_fail(check, environment):
    command = [sys.executable, "-c", textwrap.dedent(check) + FOR_EACH, *sorted(namespaces.PROVIDED)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), done.stderr


@pytest.mark.slow
def test_missing_modules_of_pytorch_are_errors_that_say_where_they_come_from():
    check = """
        def check(name):
            from tenon.errors import PluginModuleError
            attribute = [f"{name}.anything"] if name.count(".") == 1 else []
            for statement in (f"import {name}", f"import {name}.anything", *attribute):
                try:
                    exec(statement, {"tenon": tenon})
                except PluginModuleError as error:
                    assert "TENON_PLUGINS" in str(error) and "Disabled plugins: " in str(error), error
                else:
                    raise AssertionError(statement)
        """

    failed, why = namespaces_that_fail(check, {**process_environment(), "TENON_PLUGINS": "tenon_cpu"})

    assert failed == [], why


@pytest.mark.slow
def test_modules_of_pytorch_load_no_plugin_before_they_are_asked_for():
    check = """
        def check(name):
            assert "pluggy" not in sys.modules
            __import__(name)
            assert "pluggy" in sys.modules
        """

    failed, why = namespaces_that_fail(check, process_environment())

    assert failed == [], why
