"""The code in the guide to ONNX runs as it stands."""

import re
from pathlib import Path

from tests.plugins.target_onnx.programs import needs_runtime

import tenon

pytestmark = needs_runtime
GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "onnx.md"


def test_the_code_in_the_guide_runs(capsys):
    tenon.manual_seed(0)
    names = {"__name__": "guide"}
    for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.S):
        exec(compile(block, GUIDE.name, "exec"), names)

    assert "'0/Conv', '1/BatchNormalization', '2/Relu'" in capsys.readouterr().out
