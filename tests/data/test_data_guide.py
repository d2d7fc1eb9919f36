"""The code of the data guide runs as printed."""

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "data.md"


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on machines of one core
def test_the_code_runs(tmp_path, monkeypatch):
    (tmp_path / "digits.csv").write_text("a,label\n0.5,3\n")
    monkeypatch.chdir(tmp_path)
    space = {}

    exec("\n".join(re.findall(r"^```python\n(.*?)^```", GUIDE.read_text("utf-8"), re.M | re.S)), space)

    assert space["y"].item() == 3
