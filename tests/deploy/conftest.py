"""A Slurm of two nodes on this machine, for tests of the batch scripts. Needs root, and Slurm's daemons.

Everything that it writes is in one temporary folder; its daemons end with the fixture. Two slurmd processes
stand for two nodes, without control groups, so that it runs in a container.
"""

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
DAEMONS = ("munged", "slurmctld", "slurmd")
TOOLS = ("sbatch", "srun", "scancel", "scontrol", "squeue")
NODES = ("tenon1", "tenon2")
# A minute is Slurm's unit, but time limits are looked at only every 30 s.
CONFIGURATION = """
ClusterName=tenon
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmctldPort={ports[0]}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
SchedulerParameters=sched_interval=1,bf_interval=1
RebootProgram=/bin/false
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName={nodes[0]} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=8 State=UNKNOWN
NodeName={nodes[1]} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=8 State=UNKNOWN
PartitionName=batch Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=20
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=2 PreemptMode=OFF
"""


class Slurm:
    """The running Slurm: its commands, and the states of jobs."""

    def __init__(self, folder):
        self.folder = folder
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf"), "VENV": str(BIN.parent)}
        self.environment |= {"OMP_NUM_THREADS": "1"}
        self._daemons = []

    def start(self):
        """Start all daemons; returns when both nodes take jobs."""
        folder = self.folder
        key = folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(64))
        ports = free_ports(3)
        text = CONFIGURATION.format(host=socket.gethostname(), folder=folder, ports=ports, nodes=NODES)
        (folder / "slurm.conf").write_text(text)
        for name in ("state", *(f"spool-{node}" for node in NODES)):
            (folder / name).mkdir()
        options = {"socket": "munge.socket", "key-file": key.name, "pid-file": "munged.pid"}
        options |= {"log-file": "munged.log", "seed-file": "munged.seed"}
        self._run("munged", "--foreground", "--force", *(f"--{k}={folder / v}" for k, v in options.items()))
        wait(lambda: (folder / "munge.socket").exists(), "munged's socket")
        self._run("slurmctld", "-D")
        for node in NODES:
            self._run("slurmd", "-D", "-N", node)
        wait(
            lambda: self("sinfo", "-h", "-N", "-t", "idle", "-o", "%N").split() == sorted(NODES * 2), "nodes"
        )

    def _run(self, *command):
        with (self.folder / f"{command[0]}-{len(self._daemons)}.out").open("w") as log:
            self._daemons.append(
                subprocess.Popen(
                    command, env=self.environment, stdout=log, stderr=log, start_new_session=True
                )
            )

    def stop(self):
        """End all jobs, then the daemons, the last first."""
        subprocess.run(["scancel", "--user=root"], env=self.environment, capture_output=True)
        with contextlib.suppress(AssertionError):
            wait(lambda: not self("squeue", "-h"), "the end of all jobs", 40)
        for daemon in reversed(self._daemons):
            daemon.terminate()
            daemon.wait(30)

    def __call__(self, *command, folder=None):
        """The output of one of Slurm's commands."""
        done = subprocess.run(
            command, env=self.environment, cwd=folder, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0 or command[0] == "sinfo", f"{command}: {done.stderr}"
        return done.stdout.strip()

    def job(self, number):
        """What ``scontrol`` knows of a job."""
        text = self("scontrol", "show", "job", "-o", str(number))
        return dict(word.partition("=")[::2] for word in text.split())

    def wait_for(self, number, *states, limit=120):
        """Wait for one of the states; the job then."""
        wait(lambda: self.job(number)["JobState"] in states, f"{states} of job {number}", limit)
        return self.job(number)


def wait(condition, what, limit=60.0):
    """Return when ``condition()`` holds."""
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, f"waited {limit} s for {what}"
        time.sleep(0.2)


def free_ports(count):
    """Ports of 127.0.0.1 that nobody uses at the moment."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture(scope="session")
def slurm(tmp_path_factory):
    """A Slurm whose jobs can be preempted, or a skip that says what is missing."""
    missing = [name for name in (*DAEMONS, *TOOLS) if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed (Debian: apt-get install slurm-wlm)")
    if os.geteuid() != 0:
        pytest.skip("starts Slurm's daemons, which run jobs as root here")
    made = Slurm(tmp_path_factory.mktemp("slurm"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def metrics():
    """Reads the lines of a run's metrics."""
    return lambda run: [json.loads(line) for line in (Path(run) / "metrics.jsonl").read_text().splitlines()]
