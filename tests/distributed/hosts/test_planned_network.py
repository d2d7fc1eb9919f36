"""`tenon plan` between hosts: what it predicts for a limited network is what real ranks send and take there."""

import json
import shutil
from pathlib import Path

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.manual]

PROGRAMS = Path(__file__).parents[2] / "training" / "programs"
EPOCHS, STEPS = 4, 10
"""Of the training, and steps in each of its epochs."""


@pytest.mark.parametrize(("count", "ranks_per_host"), [(2, 1), (2, 2), (3, 1)])
def test_a_step_on_a_slow_network_takes_its_bytes_and_the_predicted_time(
    make_hosts, tmp_path, count, ranks_per_host
):
    """Time within 40 %: all hosts share this machine's cores. Bytes within 8 %: headers, and what starts a run."""
    hosts, ranks = make_hosts(count), str(count * ranks_per_host)
    hosts.limit("200mbit")
    for name in ("wide.py", "wide.toml"):
        shutil.copy(PROGRAMS / name, tmp_path)
    measure = f"mpirun -hosts {','.join(hosts.names[:2])} -n 2 -ppn 1"
    where = ["-n", ranks, "--ranks-per-node", str(ranks_per_host), "--mpirun", measure]
    planned = hosts.run("tenon", "plan", *where, "wide.toml", "--json", folder=tmp_path, timeout=300)
    assert planned.returncode == 0, planned.stderr
    predicted = json.loads(planned.stdout)

    add_counting_plugin(tmp_path)
    before = hosts.bytes_sent("node1")
    launcher = ["mpirun", "-hosts", ",".join(hosts.names), "-n", ranks, "-ppn", str(ranks_per_host)]
    settings = ["--set", f"epochs={EPOCHS}", "--set", "log.tensorboard=false"]
    variables = {"COUNTED": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    done = hosts.run(
        *launcher, "tenon", "train", "wide.toml", *settings, folder=tmp_path, timeout=300, **variables
    )
    assert done.returncode == 0, done.stderr
    sent = (hosts.bytes_sent("node1") - before) / (EPOCHS * STEPS)
    measured = json.loads((tmp_path / "counted-0.json").read_text())["seconds"]

    print(
        f"{count} hosts of {ranks_per_host}: {predicted['bytes']['sent_per_node'] / 1e6:.2f} MB a step"
        f" predicted, {sent / 1e6:.2f} sent; {1e3 * predicted['seconds']['step']:.0f} ms predicted,"
        f" {1e3 * measured:.0f} taken"
    )
    assert predicted["network"]["bytes_per_second"] == pytest.approx(25e6, rel=0.15)
    assert predicted["bytes"]["sent_per_node"] < sent < 1.08 * predicted["bytes"]["sent_per_node"]
    assert predicted["seconds"]["step"] == pytest.approx(measured, rel=0.4)


def add_counting_plugin(folder):
    info = folder / "counting-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: counting\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[tenon]\ncounting = counting\n")
    shutil.copy(PROGRAMS / "counting.py", folder)
