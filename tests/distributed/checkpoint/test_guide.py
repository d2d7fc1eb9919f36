"""The code of the guide on checkpoints across sizes runs as printed, on one rank and on several."""

import re
from pathlib import Path

import pytest

from tenon.testing.suites.communicator import launch

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "sharded-checkpoints.md"
CODE = "\n".join(re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.M | re.S))
END = """
total = again[0].weight.full_tensor().sum().item()
if dist.get_rank() == 0:
    print("total", total)
"""


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [1, 3, 4])
def test_the_code_runs_on_any_number_of_ranks(tmp_path, monkeypatch, ranks):
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "guide.py"
    script.write_text(CODE + END)
    done = launch(ranks, [str(script)])

    assert done.returncode == 0, done.stderr
    assert re.search(r"^total \S+", done.stdout, re.M)
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        "step-3",
        "step-4",
        "step-3.pt",
        "converted",
    }
