"""The code of the guide runs as printed."""

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "streaming-data.md"


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on machines of one core
def test_the_code_runs(tmp_path, monkeypatch):
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    monkeypatch.chdir(tmp_path)
    space = {}

    exec("\n".join(re.findall(r"^```python\n(.*?)^```", GUIDE.read_text("utf-8"), re.M | re.S)), space)

    assert space["y"].shape[0] == 250 % 32
    (tmp_path / "data").mkdir()
    for path in tmp_path.glob("train-*.tar"):
        path.rename(tmp_path / "data" / path.name)
    (tmp_path / "data" / "train-0000.tar").rename(tmp_path / "data" / "test-0000.tar")
    splits = space["load"](tmp_path / "data", tmp_path / "c")
    assert (len(splits.train), len(splits.test)) == (150, 100)
