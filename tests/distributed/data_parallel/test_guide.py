"""The code of the data-parallel guide runs as printed, on one rank and on three."""

import re
from pathlib import Path

import pytest

from tenon.testing.suites.communicator import launch

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "data-parallel.md"
CODE = "\n".join(re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.M | re.S))
END = """
assert loss < 1.2, loss
assert (model.module[0].weight.grad is not None) and len(optimizer.param_groups) == 1
print("done", dist.get_rank())
"""


@pytest.mark.mpi
@pytest.mark.parametrize("size", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_the_code_runs(tmp_path, size):
    script = tmp_path / "guide.py"
    script.write_text(CODE + END)

    done = launch(size, [str(script)])

    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.replace("done", " ").split()) == [str(rank) for rank in range(size)]
