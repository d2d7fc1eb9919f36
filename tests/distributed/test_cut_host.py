"""A host is cut off: the ranks of the other one name those they wait for, and end. Needs root and `ip netns`.

Two network namespaces stand for two hosts, a bridge for the network between them.
"""

import os
import shutil
import subprocess
import sys
import time

import pytest

from tenon.testing.suites.communicator import find_mpirun

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("ip") is None or os.geteuid() != 0, reason="makes network namespaces, which root can"
    ),
]

LIMIT = 3.0
HOSTS = ("10.77.5.1", "10.77.5.2")
HERE = "10.77.5.254"
STARTER = """#!/bin/bash
while [[ "$1" == -* ]]; do shift; done
host=$1; shift
exec ip netns exec tenon-h${host##*.} sh -c "$*"
"""
PROGRAM = """
import pathlib, sys, time

import numpy as np

import tenon.distributed as dist

communicator = dist.get_communicator()
communicator.step = 9
for step in range(10_000):
    communicator.all_reduce(np.ones(1000), name="fc.weight")
    time.sleep(0.01)
    if step == 150 and communicator.rank == 0:
        pathlib.Path(sys.argv[1]).touch()
"""


def ip(*arguments):
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    return done.returncode == 0


@pytest.fixture
def hosts():
    made = ip("link", "add", "tenon-b", "type", "bridge") and ip(
        "addr", "add", f"{HERE}/24", "dev", "tenon-b"
    )
    made = made and ip("link", "set", "tenon-b", "up")
    for number, address in enumerate(HOSTS, 1):
        space, cable = f"tenon-h{number}", f"tenon-v{number}"
        made = made and ip("netns", "add", space)
        made = made and ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
        made = made and ip("link", "set", cable, "master", "tenon-b", "up")
        made = made and ip("-n", space, "addr", "add", f"{address}/24", "dev", "eth0")
        made = (
            made
            and ip("-n", space, "link", "set", "eth0", "up")
            and ip("-n", space, "link", "set", "lo", "up")
        )
    try:
        if not made:
            pytest.skip("network namespaces cannot be made here")
        yield
    finally:
        for number in range(1, len(HOSTS) + 1):
            ip("netns", "del", f"tenon-h{number}")
        ip("link", "del", "tenon-b")


def test_a_host_that_is_cut_off_is_named_and_the_job_ends_in_time(hosts, tmp_path):
    starter, program, running = tmp_path / "starter.sh", tmp_path / "program.py", tmp_path / "running"
    starter.write_text(STARTER)
    starter.chmod(0o755)
    program.write_text(PROGRAM)
    command = [find_mpirun(), "-localhost", HERE, "-launcher", "ssh", "-launcher-exec", str(starter)]
    command += ["-hosts", ",".join(HOSTS), "-ppn", "2", "-n", "4", sys.executable, str(program), str(running)]
    environment = {**os.environ, "UCX_TLS": "tcp,self", "OMP_NUM_THREADS": "1", "TENON_WATCHDOG": str(LIMIT)}
    job = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not running.exists() and job.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)

    ip("link", "set", "tenon-v2", "down")
    cut = time.monotonic()
    _, errors = job.communicate(timeout=60)

    assert time.monotonic() - cut < LIMIT + 3
    assert job.returncode == 124, errors
    assert errors.count("=== tenon: rank") == 1, errors
    assert "step 9 has waited 3" in errors and "s for ranks 2, 3 ===" in errors
    assert errors.count("gave its last sign of life 3") == 2
    assert errors.count("all_reduce(sum) of float64[1000] named 'fc.weight' at step 9") == 3
