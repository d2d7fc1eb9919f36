"""Module paths that were importable stay importable, and each module is loaded once."""

import importlib
import importlib.util
import inspect
import pickle
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import tenon
from tenon.compat import finder
from tenon.compat.paths import MODULES
from tenon.compat.reexports import REEXPORTS

pytestmark = pytest.mark.together

#: Every path under ``tenon`` that could be imported before modules that exist only for PyTorch moved to compat.
KNOWN = (Path(__file__).parent / "module_paths.txt").read_text().split()


#: Modules of tenon's own that cannot be imported any more. The contents of two became methods and fields of
#: classes; an alias of ``tenon.ops.once`` would hide the op of that name, and ops are pickled by their names alone.
REMOVED = {"tenon.core.transcendental", "tenon.graph.expressions", "tenon.ops.once"}


@pytest.fixture(scope="module")
def imported():
    found, missing = {}, []
    for name in sorted({*KNOWN} - REMOVED):
        try:
            found[name] = importlib.import_module(name)
        except ModuleNotFoundError as error:
            missing.append(f"{name}: {error}")
    assert missing == [], "give them a row in platform/tenon/compat/paths.py"
    return found


def test_every_known_path_is_importable(imported):
    assert all(sys.modules[name] is module for name, module in imported.items())


def test_no_file_is_loaded_twice(imported):
    modules = {id(m): m for name, m in sys.modules.items() if name.partition(".")[0] == "tenon"}
    files = Counter(m.__file__ for m in modules.values() if getattr(m, "__file__", None))

    assert {file: count for file, count in files.items() if count > 1} == {}


@pytest.mark.parametrize("name", sorted({*MODULES, *REEXPORTS}))
def test_a_row_of_the_table_leads_to_a_module_that_knows_its_own_name(name):
    module = importlib.import_module(name)

    assert sys.modules[name] is module
    assert module.__spec__.name == module.__name__
    assert importlib.import_module(module.__name__) is module
    assert name not in MODULES or module is importlib.import_module(MODULES[name])
    assert all(hasattr(module, each) for each in getattr(module, "__all__", ()))


def test_what_was_removed_is_known_and_gone():
    assert {*KNOWN} >= REMOVED
    assert [name for name in REMOVED if importlib.util.find_spec(name)] == []


def test_no_row_leads_to_another_row():
    assert [name for name, meant in MODULES.items() if meant in MODULES] == []
    assert sorted(MODULES.keys() & REEXPORTS.keys()) == []


@pytest.mark.slow
def test_rows_are_attributes_of_their_package_before_an_import():
    code = "import sys, tenon\nfor name in sys.argv[1:]: getattr(tenon, name)"
    names = [name.partition(".")[2] for name in {*MODULES, *REEXPORTS} if name.count(".") == 1]

    subprocess.run([sys.executable, "-c", code, *names], check=True)
    assert set(names) <= set(dir(tenon))


@pytest.mark.slow
def test_submodules_of_a_package_with_two_names_have_two_names():
    code = (
        "import tenon.jit.annotations, tenon.compat.jit.annotations as first, sys\n"
        "assert tenon.jit.annotations is first is sys.modules['tenon.jit.annotations']\n"
        "from tenon.backends import mkldnn, opt_einsum\n"
        "from tenon.compat.backends import mkldnn as same\n"
        "assert mkldnn is same\n"
        "import tenon as torch\n"
        "assert torch.jit.annotations is first and torch.torch.backends.mkldnn is same"
    )

    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_class_is_one_class_under_every_path():
    from tenon.compat.jit import ScriptList

    old = b"ctenon.jit\nScriptList\n."  # a pickle that names it by its second path

    assert pickle.loads(old) is ScriptList is pickle.loads(pickle.dumps(ScriptList))
    assert inspect.getmodule(ScriptList) is tenon.jit
    assert inspect.getsourcefile(tenon.jit) == inspect.getsourcefile(ScriptList)


def test_a_missing_name_is_reported_as_it_was_imported():
    with pytest.raises(ModuleNotFoundError, match=r"'tenon\.jit\.nothing'"):
        importlib.import_module("tenon.jit.nothing")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tenon.nothing


@pytest.mark.slow
def test_a_module_runs_under_its_second_name():
    code = "import runpy; print('show' in runpy.run_module('tenon.__config__'))"
    for command in (["-c", code], ["-m", "tenon.jit.annotations"], ["-m", "tenon.compiler"]):
        run = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True)
        assert run.stderr == "" and run.stdout == ("True\n" if command[0] == "-c" else "")


def test_the_finder_is_installed_once_and_ignores_other_packages():
    finder.install()

    assert sum(isinstance(each, finder.Finder) for each in sys.meta_path) == 1
    assert all(finder.Finder().find_spec(name) is None for name in ("json", "tenon", "tenonx.jit"))
