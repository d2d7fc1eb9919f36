"""Between hosts with 2 Gbit/s at least half of the communication that could be hidden goes on beside backward.

The figures are printed: ``pytest -m slow -s tests/distributed/test_hidden_communication.py``. They need a core
for each of two ranks: where other programs take that, the test skips and says so.
"""

import json
from pathlib import Path

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.slow]

PROGRAM = Path(__file__).parent / "programs" / "hidden_communication.py"


def test_half_of_the_communication_that_can_be_hidden_is(hosts, tmp_path):
    hosts.limit("2gbit")
    (tmp_path / "hosts").write_text("node1:1\nnode2:1\n")
    tries = []
    while len(tries) < 3 and not (tries and tries[-1]["hidden"] > 0.5):
        done = hosts.run(
            "mpirun", "-f", "hosts", "-n", "2", "python", str(PROGRAM), folder=tmp_path, timeout=300
        )
        assert done.returncode == 0, done.stderr
        print(done.stdout.strip())
        tries.append(json.loads(done.stdout))

    best = max(tries, key=lambda found: found["hidden"])
    if best["hidden"] <= 0.5 and max(found["processor"] for found in tries) < 0.9:
        pytest.skip(f"the ranks had to share their cores with other programs: {tries}")
    assert best["hidden"] > 0.5, tries
    assert 120 < best["communication"] < 240, "32 MB at 2 Gbit/s take 134 ms"
