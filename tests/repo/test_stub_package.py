"""The stub package ``platform/tenon-stubs``: current, complete, and found by type checkers."""

from __future__ import annotations

import importlib
import pathlib
import re
import subprocess
import sys

import pytest

from tenon.compat.paths import FORMER, MODULES
from tenon.compat.reexports import REEXPORTS
from tenon.config import process_environment
from tenon.plugins import stubs


@pytest.mark.slow
def test_checked_in_stubs_are_up_to_date():
    command = [sys.executable, "-m", "tenon.cli", "stubs", "--check"]
    environment = {**process_environment(), "TENON_PLUGINS": "tenon-platform"}

    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stderr


def test_type_checkers_may_read_every_package_that_the_stubs_name():
    stub_files = stubs.STUB_PACKAGE.rglob("*.pyi")
    named = {n for f in stub_files for n in re.findall(r"^from (tenon_\w+)", f.read_text(), re.MULTILINE)}

    assert "tenon_optimizers" in named
    for package in named:
        assert (pathlib.Path(importlib.import_module(package).__file__).parent / "py.typed").exists(), package


def test_every_module_name_without_a_file_has_a_stub():
    for name in {*MODULES, *REEXPORTS} - FORMER.keys():
        path = stubs.STUB_PACKAGE.joinpath(*name.split(".")[1:])
        assert path.with_name(f"{path.name}.pyi").exists() or (path / "__init__.pyi").exists(), name


def test_no_stub_is_next_to_the_sources():
    assert list(stubs.PACKAGE.rglob("*.pyi")) == [], "pyright ignores them, as there is a stub package"


CHECKED = """
import tenon
import tenon.distributions as D
import tenon.optim
from tenon.ao.quantization import quantize_dynamic
from tenon.distributions.normal import Normal
from tenon.fx.experimental.proxy_tensor import get_proxy_mode
from tenon.jit import ScriptModule
from tenon.nn.modules.conv import Conv2d
from tenon.nn.utils.prune import L1Unstructured
from tenon.utils._pytree import _register_pytree_node, tree_map
from tenon.utils.data import DataLoader

reveal_type(D.Normal(0.0, tenon.ones(())))
reveal_type(tenon.optim.SGD)
reveal_type(Conv2d)
reveal_type(L1Unstructured)
reveal_type(ScriptModule())
reveal_type(tree_map)
reveal_type(DataLoader)
reveal_type(quantize_dynamic)
D.Abnormal
"""


@pytest.mark.slow
def test_type_checker_outside_of_the_repository_finds_names_without_a_file(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "script.py").write_text(CHECKED)
    command = [sys.executable, "-m", "mypy", "--no-color-output", "--cache-dir", "cache", "script.py"]

    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    errors = [line for line in result.stdout.splitlines() if "error:" in line]
    assert [line.partition("error: ")[2] for line in errors] == [
        'Module has no attribute "Abnormal"  [attr-defined]'
    ], result.stdout
    revealed = [line.partition("type is ")[2] for line in result.stdout.splitlines() if "Revealed" in line]
    assert len(revealed) == 8 and '"Any"' not in revealed, revealed
    assert "tenon_distributions.distributions.continuous.normal.Normal" in revealed[0]
    assert "tenon_optimizers.sgd.SGD" in revealed[1]
