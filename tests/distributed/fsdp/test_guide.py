"""The code of the guide on sharded training runs as printed, with the same losses on any number of ranks."""

import re
from pathlib import Path

import pytest

from tenon.testing.suites.communicator import launch

pytestmark = pytest.mark.mpi
GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "sharded-training.md"
CODE = "\n".join(re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.M | re.S))
END = """
total = torch.tensor([loss.item(), 1.0])
dist.all_reduce(total)
for name, value in replicated.state_dict().items():
    assert torch.equal(value.full_tensor(), whole[name]), name
for trained in (large, half, wrapped):
    trained(x[rows]).sum().backward()
drawn = large[1].up.weight.full_tensor()
assert list(saved) == list(build().state_dict())
if dist.get_rank() == 0:
    print("loss", total[0].item() / total[1].item(), drawn.sum().item())
"""


def run(ranks, folder):
    script = folder / "guide.py"
    script.write_text(CODE + END)
    done = launch(ranks, [str(script)])
    assert done.returncode == 0, done.stderr
    return [float(number) for number in re.search(r"^loss (\S+) (\S+)", done.stdout, re.M).groups()]


@pytest.mark.slow
def test_the_code_gives_the_same_loss_on_one_rank_and_on_two(tmp_path):
    assert run(2, tmp_path) == pytest.approx(run(1, tmp_path), rel=1e-3)


@pytest.mark.slow
def test_four_and_three_ranks(tmp_path):
    one = run(1, tmp_path)
    assert run(4, tmp_path) == pytest.approx(one, rel=1e-3)
    assert run(3, tmp_path) == pytest.approx(one, rel=1e-3)
