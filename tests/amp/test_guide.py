"""The code in the guide runs as printed, and its table is correct."""

from __future__ import annotations

import re
from pathlib import Path

import tenon

GUIDE = (Path(__file__).parents[2] / "docs" / "guide" / "mixed-precision.md").read_text("utf-8")


def test_the_code_in_the_guide_runs():
    names: dict = {}
    blocks = re.findall(r"```python\n(.*?)```", GUIDE, re.S)

    for block in blocks:
        exec(compile(block, "guide", "exec"), names)

    assert len(blocks) == 3
    assert names["loss"].isfinite().item()


def test_what_the_table_says_of_the_cpu_holds():
    x = tenon.rand(4, 4).bfloat16()
    with tenon.autocast("cpu"):
        assert (x.float() @ x).dtype is tenon.bfloat16
        assert tenon.nn.functional.mse_loss(x, x).dtype is tenon.float32
        assert tenon.cdist(x, x).dtype is tenon.float32
        assert x.softmax(1).dtype is x.exp().dtype is tenon.bfloat16
        assert (x + x.float()).dtype is tenon.float32
        assert (x.double() @ x.double()).dtype is tenon.float64
