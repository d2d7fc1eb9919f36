"""The guide "From training to C": its Python runs, and its C compiles and runs on what that has written."""

import re
import subprocess
from pathlib import Path

import pytest

import tenon
from tenon.export import verify

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "c.md"


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE.read_text(), re.M | re.S)


@pytest.mark.slow
def test_the_code_of_the_guide_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tenon.manual_seed(0)
    names = {}
    for block in blocks("python"):
        exec(compile(block, "c.md", "exec"), names)
    (tmp_path / "digits" / "c" / "main.c").write_text(blocks("c")[0])
    sources = ["main.c", "model.c", "kernels.c"]

    subprocess.run(
        ["gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-o", "main", *sources, "-lm"],
        cwd=tmp_path / "digits" / "c",
        check=True,
    )
    done = subprocess.run(
        ["./main"], cwd=tmp_path / "digits" / "c", capture_output=True, text=True, check=True
    )

    expected = names["model"](tenon.zeros(1, 1, 8, 8))[0, 0]
    assert abs(float(done.stdout) - float(expected)) < 1e-5
    assert verify("digits-step").passed
    assert verify("digits-any").passed
