"""The code of the guide on pipelines runs as printed, with the same loss on any number of ranks."""

import re
from pathlib import Path

import pytest

from tenon.testing.suites.communicator import launch

pytestmark = pytest.mark.mpi
GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "pipeline-parallel.md"
CODE = "\n".join(re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.M | re.S))
END = """
trained = Model()
trained.load_state_dict(whole["model"])
loss = nn.functional.mse_loss(trained(inputs), targets).item()
if rank == ranks - 1:
    assert torch.stack(losses).mean() < 1 and output.shape == targets.shape
    print("loss", loss)
"""


def run(ranks, folder):
    script = folder / "guide.py"
    script.write_text(f"folder = {str(folder / f'checkpoint-{ranks}')!r}\n" + CODE + END)
    done = launch(ranks, [str(script)])
    assert done.returncode == 0, done.stderr
    return float(re.search(r"^loss (\S+)", done.stdout, re.M)[1])


@pytest.mark.slow
def test_the_code_gives_the_same_loss_on_any_number_of_ranks(tmp_path):
    one = run(1, tmp_path)
    assert run(2, tmp_path) == pytest.approx(one, rel=1e-3)
    assert run(4, tmp_path) == pytest.approx(one, rel=1e-3)
