"""The guide "From training to C": its Python runs, and its C compiles and runs on what that has written."""

import re
import subprocess
from pathlib import Path

import pytest

import tenon
from tenon import nn
from tenon.export import verify

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "c.md"


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE.read_text(), re.M | re.S)


def ran(folder, source):
    """Compile a program of the guide in the folder of a model, run it there, and return what it prints."""
    (folder / "main.c").write_text(source)
    sources = ["main.c", "model.c", "kernels.c"]
    warnings = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    subprocess.run(["gcc", *warnings, "-o", "main", *sources, "-lm"], cwd=folder, check=True)
    return subprocess.run(["./main"], cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_the_code_of_the_guide_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tenon.manual_seed(0)
    names = {}
    for block in blocks("python"):
        exec(compile(block, "c.md", "exec"), names)
    zeros = tenon.zeros(5, 1, 8, 8)
    loss = nn.functional.cross_entropy(names["model"](zeros), tenon.zeros(5, dtype=tenon.int64))

    main, tune, any_batch = blocks("c")

    score = float(names["model"](zeros)[0, 0])
    assert abs(float(ran(tmp_path / "digits" / "c", main)) - score) < 1e-5
    rows, last_score = ran(tmp_path / "digits-any" / "c", any_batch).split()
    assert rows == "5" and abs(float(last_score) - score) < 1e-5
    last, *text = ran(tmp_path / "digits-step" / "c", tune).split()
    assert 0 < float(last) < float(loss) and text == ["no", "error"]
    size = (tmp_path / "digits-step" / "c" / "weights.bin").stat().st_size
    assert (tmp_path / "digits-step" / "c" / "tuned.bin").stat().st_size == size
    assert verify("digits-step").passed
    assert verify("digits-any").passed
