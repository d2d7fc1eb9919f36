"""The code of the guide on sharded tensors runs as printed, on one rank and on several."""

import re
from pathlib import Path

import pytest

from tenon.testing.suites.communicator import launch

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "sharded-tensors.md"
CODE = "\n".join(re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.M | re.S))
END = """
assert torch.equal(whole, (torch.arange(12.0).reshape(4, 3) @ torch.ones(3, 2)))
assert torch.equal(again.full_tensor(), whole)
final = loss.item()
if dist.get_rank() == 0:
    print("loss", final)
"""


def loss_on(ranks, folder):
    script = folder / "guide.py"
    script.write_text(CODE + END)
    done = launch(ranks, [str(script)])
    assert done.returncode == 0, done.stderr
    return float(re.search(r"^loss (\S+)", done.stdout, re.M)[1])


@pytest.mark.slow
@pytest.mark.mpi
def test_the_code_gives_the_same_loss_on_any_number_of_ranks(tmp_path):
    assert loss_on(2, tmp_path) == pytest.approx(loss_on(1, tmp_path), rel=1e-4)


@pytest.mark.mpi
@pytest.mark.slow
def test_four_and_six_ranks(tmp_path):
    one = loss_on(1, tmp_path)
    assert [loss_on(ranks, tmp_path) for ranks in (4, 6)] == pytest.approx([one, one], rel=1e-4)
