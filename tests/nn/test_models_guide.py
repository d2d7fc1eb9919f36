"""The code in the guide to models and in the docstrings of its layers runs as it stands."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from tenon.nn.layers import attention, drop_path, patch_embed, positional_encodings, transformer

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "models.md"


def test_the_code_in_the_guide_runs():
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.S)

    names: dict = {"__name__": "guide"}
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), names)

    assert len(blocks) == 5


@pytest.mark.parametrize("module", [attention, drop_path, patch_embed, positional_encodings, transformer])
def test_docstrings_run(module):
    assert doctest.testmod(module).failed == 0
