"""The guide from training to serving runs as printed."""

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "compressing.md"


@pytest.mark.slow
def test_the_tutorial_trains_prunes_quantizes_and_serves(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "guide"}
    for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.S):
        exec(compile(block, GUIDE.name, "exec"), names)

    assert sum(image == label for image, label in zip(*answers(names), strict=True)) > 0.95 * 64
    assert capsys.readouterr().out.count("total (bytes: the file)") >= 2


def answers(names):
    images, labels = names["test"][0]
    return names["classify"](images.numpy()), labels.tolist()
