"""The code of the guide runs as printed, and prints one line on any number of ranks, sharded or not."""

import re
from pathlib import Path

import pytest

from tenon.testing.suites.communicator import launch

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "deterministic.md"
SCRIPT, SHARDED = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.M | re.S)


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [2, 4])
def test_the_script_prints_one_line_whatever_the_number_of_ranks(tmp_path, ranks):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)

    done = [launch(size, [str(script)]) for size in (1, ranks)]

    assert all(one.returncode == 0 for one in done), [one.stderr for one in done]
    assert done[0].stdout == done[1].stdout == _sharded(tmp_path, ranks)
    assert re.fullmatch(r"[0-9a-f]{64} [01]\.\d{6}\n", done[0].stdout), done[0].stdout


def _sharded(folder, ranks):
    """What the script prints if it shards the model."""
    script = re.sub(r"^model = Distributed.*$", lambda _: SHARDED, SCRIPT, flags=re.M)
    script = script.replace("value.numpy()", "getattr(value, 'full_tensor', lambda: value)().numpy()")
    (folder / "sharded.py").write_text(script)
    done = launch(ranks, [str(folder / "sharded.py")])
    assert done.returncode == 0 and "fully_shard" in script, done.stderr
    return done.stdout
