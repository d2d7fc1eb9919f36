"""The code of the guides on sharded tensors and on tensor parallel runs as printed, on one rank and on several."""

import re
from pathlib import Path

import pytest

from tenon.testing.suites.communicator import launch

GUIDES = Path(__file__).parents[3] / "docs" / "guide"
END = {
    "sharded-tensors": """
assert torch.equal(whole, (torch.arange(12.0).reshape(4, 3) @ torch.ones(3, 2)))
assert torch.equal(again.full_tensor(), whole)
final = loss.item()
if dist.get_rank() == 0:
    print("loss", final)
""",
    "tensor-parallel": """
from tenon.distributed.tensor import DTensor

for name, value in model.state_dict().items():
    assert torch.equal(value.full_tensor(), state[name]), name
assert scores.shape == (2, 4, 32) and y.shape == (4, 16)
mean = torch.tensor(loss.item())
dist.all_reduce(mean, op=dist.ReduceOp.AVG)
if dist.get_rank() == 0:
    print("loss", mean.item())
""",
}


def loss_on(ranks, guide):
    script = Path("guide.py")
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", (GUIDES / f"{guide}.md").read_text(), re.M | re.S))
    script.write_text(code + END[guide])
    done = launch(ranks, [str(script)])
    assert done.returncode == 0, done.stderr
    return float(re.search(r"^loss (\S+)", done.stdout, re.M)[1])


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("guide", END)
def test_the_code_gives_the_same_loss_on_any_number_of_ranks(tmp_path, monkeypatch, guide):
    monkeypatch.chdir(tmp_path)
    one, *others = [loss_on(ranks, guide) for ranks in (1, 2, 4, 6)]

    assert others == pytest.approx([one] * 3, rel=1e-4)
