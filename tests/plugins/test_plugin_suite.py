"""Every first-party plugin passes the suite that third parties use; broken ones do not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest

from tenon.config import process_environment
from tenon.errors import PluginError
from tenon.testing import PluginSuite


class TestOptimizers(PluginSuite):
    plugin = "tenon_optimizers.plugin"


class TestCompress(PluginSuite):
    plugin = "tenon_compress.plugin"


class TestCpu(PluginSuite):
    plugin = "tenon_cpu.plugin"


class TestDistributedExtras(PluginSuite):
    plugin = "tenon_distributed_extras.plugin"


class TestDistributions(PluginSuite):
    plugin = "tenon_distributions.plugin"


class TestMpi(PluginSuite):
    plugin = "tenon_mpi.plugin"
    needs: ClassVar = {"mpi": "mpi4py"}


class TestPlan(PluginSuite):
    plugin = "tenon_plan.plugin"


class TestProfiler(PluginSuite):
    plugin = "tenon_profiler.plugin"


class TestRecipes(PluginSuite):
    plugin = "tenon_recipes.plugin"


class TestSpecial(PluginSuite):
    plugin = "tenon_special.plugin"


class TestTensorBoard(PluginSuite):
    plugin = "tenon_tensorboard.plugin"


GOOD = '''
"""Tigers."""
from tenon.extend import hookimpl

@hookimpl
def tenon_optimizers():
    return {"Tiger": "tenon_zoo.tiger:Tiger"}
'''
TIGER = '''
from tenon.extend import Optimizer

class Tiger(Optimizer):
    """A tiger."""
'''


def suite(install, plugin=GOOD, tiger=TIGER, point="tenon_zoo.plugin"):
    files = {"tenon_zoo/__init__.py": "", "tenon_zoo/plugin.py": plugin, "tenon_zoo/tiger.py": tiger}
    install("tenon-zoo", {"zoo": point}, files)
    return type("Zoo", (PluginSuite,), {"plugin": "tenon_zoo.plugin"})()


CHECKS = [name for name in vars(PluginSuite) if name.startswith("test_")]


@pytest.mark.parametrize("check", CHECKS)
def test_a_good_plugin_passes(install, check):
    getattr(suite(install), check)()


@pytest.mark.parametrize(
    ("check", "changes", "error", "words"),
    [
        (
            "test_is_found_by_its_entry_point",
            {"point": "tenon_zoo.other"},
            AssertionError,
            "Add it to pyproject",
        ),
        (
            "test_imports_nothing_heavy",
            {"plugin": GOOD.replace("from tenon", "import numpy\nfrom tenon", 1)},
            AssertionError,
            "also imports numpy",
        ),
        (
            "test_imports_nothing_heavy",
            {"plugin": GOOD.replace("@hook", "import tenon_zoo.tiger\n@hook"), "tiger": "Tiger = 3"},
            AssertionError,
            "imports its targets already",
        ),
        (
            "test_implements_known_hooks",
            {"plugin": GOOD.replace("tenon_optimizers", "tenon_optimisers")},
            PluginError,
            "tenon_optimisers",
        ),
        (
            "test_implements_known_hooks",
            {"plugin": GOOD.replace("@hookimpl", "")},
            PluginError,
            "without the @hookimpl marker",
        ),
        ("test_implements_known_hooks", {"plugin": '"""Nothing."""'}, AssertionError, "implements no hook"),
        ("test_targets_resolve", {"tiger": "class Puma: pass"}, ImportError, "Tiger"),
        (
            "test_targets_derive_from_what_their_kind_asks_for",
            {"tiger": "class Tiger: pass"},
            AssertionError,
            "not a subclass of tenon.extend.Optimizer",
        ),
        (
            "test_everything_is_documented",
            {"tiger": TIGER.replace('"""A tiger."""', "pass")},
            AssertionError,
            "'Tiger'",
        ),
        (
            "test_everything_is_documented",
            {"plugin": GOOD.replace('"""Tigers."""', "")},
            AssertionError,
            "plugin has",
        ),
    ],
)
def test_a_broken_plugin_fails_with_advice(install, check, changes, error, words):
    with pytest.raises(error, match=words):
        getattr(suite(install, **changes), check)()


def test_a_target_whose_library_is_absent_is_not_imported(install):
    zoo = suite(install, tiger="import a_library_that_is_not_there")
    zoo.needs = {"Tiger": "a_library_that_is_not_there"}

    with pytest.raises(pytest.skip.Exception, match="a_library_that_is_not_there not installed"):
        zoo.test_targets_resolve()
    assert zoo.targets() == []


@pytest.mark.slow
def test_the_tests_of_the_guide_pass_for_the_plugin_of_the_guide(install, tmp_path):
    text = (Path(__file__).resolve().parents[2] / "docs" / "guide" / "plugins.md").read_text("utf-8")
    files = dict(re.findall(r"^```\w+\n# (\S+)\n(.*?)^```", text, re.M | re.S))
    package = {
        path: body
        for path, body in files.items()
        if path in ("tenon_tiger/plugin.py", "tenon_tiger/tiger.py")
    }
    documented = {"tenon_tiger/plugin.py": '"""Tiger."""\n' + package.pop("tenon_tiger/plugin.py")}
    root = install(
        "tenon-tiger",
        {"tiger": "tenon_tiger.plugin"},
        {"tenon_tiger/__init__.py": "", **package, **documented},
    )
    (tmp_path / "test_tiger.py").write_text(files["tests/test_tiger.py"])

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "test_tiger.py"],
        cwd=tmp_path,
        env=dict(process_environment()) | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
