"""Stub files for modules whose names come from plugins."""

from __future__ import annotations

import ast

import pytest
from click.testing import CliRunner

from tenon.cli import main
from tenon.compat import stubs as compat_stubs
from tenon.errors import PluginError
from tenon.extend import hookimpl
from tenon.plugins import stubs
from tenon.plugins.loader import PluginInfo

SOURCE = '''"""Zoo."""
from __future__ import annotations
import os
from collections.abc import Mapping
from tenon.plugins.lazy import lazy_namespace

__all__ = ["feed"]
limit: int = 3

def feed(animal: str, food: Mapping[str, int]) -> bool:
    """Feed it."""
    return bool(os.environ)

def _private() -> None: ...

__getattr__, __dir__ = lazy_namespace(__name__, kind="optimizers")
'''


class Cats:
    @hookimpl
    def tenon_optimizers(self):
        return {"Tiger": "cats.tiger:Tiger", "Leo": "cats.leo:LeoOptimizer"}


def _register(host, distribution):
    info = PluginInfo("cats", Cats(), "cats", distribution, "1.0")
    host._register(info)
    host._plugins.append(info)


def test_stub_repeats_the_module_and_adds_first_party_names(tmp_path, empty_host):
    (tmp_path / "__init__.py").write_text(SOURCE)
    _register(empty_host, "tenon-platform")

    found = stubs.stubs(empty_host.registry, tmp_path, tmp_path)

    assert list(found) == [tmp_path / "__init__.pyi"]
    text = found[tmp_path / "__init__.pyi"]
    ast.parse(text)
    lines = text.splitlines()
    assert "from cats.leo import LeoOptimizer as Leo" in lines
    assert "from cats.tiger import Tiger as Tiger" in lines
    assert "from collections.abc import Mapping as Mapping" in lines
    assert "__all__ = ['feed']" in lines
    assert "limit: int" in lines
    assert "def feed(animal: str, food: Mapping[str, int]) -> bool:" in lines
    assert "_private" not in text and "lazy_namespace" not in text and "__future__" not in text


def test_stub_leaves_third_party_names_out(tmp_path, empty_host):
    (tmp_path / "__init__.py").write_text(SOURCE)
    _register(empty_host, "tenon-cats")

    text = stubs.stubs(empty_host.registry, tmp_path, tmp_path)[tmp_path / "__init__.pyi"]

    assert "Tiger" not in text


def test_stubs_of_an_environment_have_third_party_names(tmp_path, empty_host):
    (tmp_path / "__init__.py").write_text(SOURCE)
    _register(empty_host, "tenon-cats")

    class Others:
        @hookimpl
        def tenon_optimizers(self):
            return {"Leo": "others.leo:Leo", "Object": object, "Inner": "others:A.B", "9": "others:Nine"}

    empty_host.register(Others(), "others")
    text = stubs.stubs(empty_host.registry, tmp_path, tmp_path, third_party=True)[tmp_path / "__init__.pyi"]

    ast.parse(text)
    assert "from cats.tiger import Tiger as Tiger" in text
    assert not any(name in text for name in ("Leo", "Object", "Inner", "Nine"))  # twice, or not importable


@pytest.mark.slow
def test_the_command_writes_the_names_of_installed_plugins(tmp_path, install):
    import os
    import shutil
    import subprocess
    import sys
    from pathlib import Path

    import tenon

    package = tmp_path / "site"
    shutil.copytree(
        Path(tenon.__file__).parent, package / "tenon", ignore=shutil.ignore_patterns("__pycache__")
    )
    folder = Path(__file__).parents[2] / "examples" / "tiger" / "tenon_tiger"
    files = {f"tenon_tiger/{path.name}": path.read_text() for path in folder.glob("*.py")}
    tiger = install("tenon-tiger", {"tiger": "tenon_tiger.plugin"}, files)
    environment = {**os.environ, "PYTHONPATH": f"{package}{os.pathsep}{tiger}"}
    written = subprocess.run(
        [sys.executable, "-c", "from tenon.cli import main; main()", "stubs", "--all"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert written.returncode == 0, written.stderr
    stub = package / "tenon-stubs" / "optim" / "__init__.pyi"
    assert "from tenon_tiger.tiger import Tiger as Tiger" in stub.read_text()


def test_module_without_plugin_names_gets_no_stub(tmp_path, empty_host):
    (tmp_path / "plain.py").write_text("x = 'lazy_namespace(__name__, kind=1)'\n")

    assert stubs.stubs(empty_host.registry, tmp_path, tmp_path) == {}


def test_first_party_target_that_a_stub_cannot_import_is_refused(tmp_path, empty_host, monkeypatch):
    (tmp_path / "__init__.py").write_text(SOURCE)
    monkeypatch.setattr(Cats, "tenon_optimizers", hookimpl(lambda self: {"Tiger": "cats:Zoo.Tiger"}))
    _register(empty_host, "tenon-platform")

    with pytest.raises(PluginError, match="Declare first-party names with targets"):
        stubs.stubs(empty_host.registry, tmp_path, tmp_path)


def test_command_writes_once_and_check_tells_stale_from_fresh(tmp_path, empty_host, monkeypatch):
    (tmp_path / "__init__.py").write_text(SOURCE)
    folder = tmp_path / "written"
    monkeypatch.setattr(compat_stubs, "STUB_PACKAGE", folder)
    monkeypatch.setattr(compat_stubs.expected_stubs, "__defaults__", (folder,))
    monkeypatch.setattr(stubs.stubs, "__defaults__", (tmp_path, folder))
    run = CliRunner().invoke

    assert run(main, ["stubs", "--check"]).exit_code == 1
    assert not folder.exists()
    assert "wrote" in run(main, ["stubs"]).output
    assert (folder / "py.typed").read_text() == "partial\n"
    assert (folder / "__init__.pyi").exists() and (folder / "jit" / "annotations.pyi").exists()
    assert run(main, ["stubs"]).output == ""
    assert run(main, ["stubs", "--check"]).exit_code == 0

    (folder / "former.pyi").touch()
    assert run(main, ["stubs", "--check"]).exit_code == 1
    assert "removed" in run(main, ["stubs"]).output
    assert not (folder / "former.pyi").exists()
