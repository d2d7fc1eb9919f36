"""The code in the guide and in docstrings runs as printed."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

from tenon import serialize

pytestmark = pytest.mark.together

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "saving.md"
MODULES = [
    "tenon.serialize",
    *(f"tenon.serialize.{m.name}" for m in pkgutil.iter_modules(serialize.__path__)),
]


def test_the_code_in_the_guide_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.S)

    names: dict = {}
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), names)

    assert len(blocks) == 7


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_docstrings_hold(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
