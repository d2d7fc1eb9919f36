"""Hosts for tests of what happens between them: network namespaces with an sshd each. Needs root.

A host has its own network, host name and System V IPC; files and process numbers are those of this machine. A
bridge joins the hosts, and each has one cable to it. What is written lies in a temporary folder, except for
the names of the hosts, which `ip netns` reads from ``/etc/netns``. All of it is gone with the fixture.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tenon.testing.suites.communicator import find_mpirun

NETWORK = "10.77.5"
TAG = f"tenon{os.getpid()}"
"""Of the namespaces, the bridge and its cables: two of these may be there at a time."""
NAMES = ("node1", "node2", "node3")
SSHD = """
HostKey {folder}/key
AuthorizedKeysFile {folder}/key.pub
PidFile none
PermitRootLogin prohibit-password
PasswordAuthentication no
StrictModes no
UsePAM no
"""
CLIENT = """
IdentityFile {folder}/key
StrictHostKeyChecking no
UserKnownHostsFile /dev/null
LogLevel ERROR
"""


class Hosts:
    """Hosts ``node1``, ``node2`` ... on one switch; a user of them sits at ``node1``."""

    def __init__(self, folder, count):
        self.folder = folder
        self.names = NAMES[:count]
        self._servers = []

    def start(self):
        """Create all hosts; return when each accepts ssh connections."""
        ip("link", "add", TAG, "type", "bridge")
        ip("link", "set", TAG, "up")
        for number, name in enumerate(self.names, 1):
            space, cable = f"{TAG}-{name}", f"{TAG}-{number}"
            folder = Path("/etc/netns", space)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "hosts").write_text("127.0.0.1 localhost\n" + self._addresses())
            ip("netns", "add", space)
            ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("link", "set", cable, "master", TAG, "up")
            ip("-n", space, "addr", "add", f"{NETWORK}.{number}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "link", "set", "lo", "up")
        self._serve()

    def _addresses(self):
        return "".join(f"{NETWORK}.{number} {name}\n" for number, name in enumerate(self.names, 1))

    def _serve(self):
        """An sshd on every host that lets in whoever has the key made here."""
        folder = self.folder
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key")], check=True)
        (folder / "sshd_config").write_text(SSHD.format(folder=folder))
        (folder / "ssh_config").write_text(CLIENT.format(folder=folder))
        client = folder / "ssh"
        client.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/ssh_config "$@"\n')
        client.chmod(0o755)
        Path("/run/sshd").mkdir(exist_ok=True)  # Where sshd locks up its unprivileged part.
        for name in self.names:
            with (folder / f"sshd-{name}.log").open("w") as log:
                command = [sshd(), "-D", "-e", "-f", str(folder / "sshd_config")]
                self._servers.append(subprocess.Popen(self.on(name, *command), stderr=log))
        deadline = time.monotonic() + 30
        for name in self.names:
            while self.run(str(client), name, "true").returncode:
                assert time.monotonic() < deadline, (folder / f"sshd-{name}.log").read_text()
                time.sleep(0.1)

    def on(self, name, *command):
        """The command line that runs ``command`` on host ``name``."""
        enter = ["ip", "netns", "exec", f"{TAG}-{name}", "unshare", "--uts", "--ipc"]
        return [*enter, "sh", "-c", 'hostname "$0"; exec "$@"', name, *command]

    def start_on_first(self, *command, folder=None, **settings):
        """Start ``command`` at ``node1``, with this environment's programs and ``settings`` as variables."""
        programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        environment = {**os.environ, "PATH": programs, "OMP_NUM_THREADS": "1", **settings}
        # In place of a key in ~/.ssh and known hosts: the client that knows those made here.
        environment |= {"HYDRA_LAUNCHER_EXEC": str(self.folder / "ssh"), "SSH": str(self.folder / "ssh")}
        return subprocess.Popen(
            self.on(self.names[0], *command),
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *command, folder=None, timeout=120, **settings):
        """``command`` at ``node1``, finished."""
        job = self.start_on_first(*command, folder=folder, **settings)
        try:
            out, err = job.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            job.kill()
            out, err = job.communicate()
            raise AssertionError(f"{command} took more than {timeout} s: {out}{err}") from None
        return subprocess.CompletedProcess(command, job.returncode, out, err)

    def limit(self, rate):
        """Let each host send at most ``rate``, such as ``2gbit``."""
        for name in self.names:
            command = ["tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", rate]
            command += ["burst", "256kb", "latency", "50ms"]
            subprocess.run(["ip", "netns", "exec", f"{TAG}-{name}", *command], check=True)

    def cut(self, name):
        """Disconnect host ``name``."""
        ip("link", "set", f"{TAG}-{self.names.index(name) + 1}", "down")

    def restore(self, name):
        """Connect host ``name`` again."""
        ip("link", "set", f"{TAG}-{self.names.index(name) + 1}", "up")

    def bytes_sent(self, name):
        """How much has left host ``name``."""
        path = "/sys/class/net/eth0/statistics/tx_bytes"
        command = ["ip", "netns", "exec", f"{TAG}-{name}", "cat", path]
        return int(subprocess.run(command, capture_output=True, check=True).stdout)

    def ranks(self, name):
        """The ranks on host ``name``: its Python processes but for their monitor."""
        listed = subprocess.run(["ip", "netns", "pids", f"{TAG}-{name}"], capture_output=True, text=True)
        return [number for number in listed.stdout.split() if "python" in program(number)]

    def stop(self):
        """Remove everything that ``start`` created."""
        for name in self.names:
            listed = subprocess.run(["ip", "netns", "pids", f"{TAG}-{name}"], capture_output=True, text=True)
            for number in listed.stdout.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(number), 9)
        for server in self._servers:
            server.wait(10)
        for number, name in enumerate(self.names, 1):
            # First: connections that were cut keep a namespace alive for minutes, and so its cable.
            ip("link", "del", f"{TAG}-{number}", check=False)
            ip("netns", "del", f"{TAG}-{name}", check=False)
            shutil.rmtree(f"/etc/netns/{TAG}-{name}", ignore_errors=True)
        ip("link", "del", TAG, check=False)


def ip(*arguments, check=True):
    """``ip ARGUMENTS``; whether it did what it says."""
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    assert not check or done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"
    return done.returncode == 0


def program(number):
    """What the process ``number`` runs; empty if it has ended."""
    try:
        if b"host_monitor.py" in Path(f"/proc/{number}/cmdline").read_bytes():
            return "the monitor"
        return os.readlink(f"/proc/{number}/exe")
    except OSError:
        return ""


def sshd():
    """The path of the ssh server, which is not on the PATH of ordinary users; None if there is none."""
    return shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin")


@pytest.fixture
def make_hosts(tmp_path_factory):
    """``make_hosts(2)`` makes hosts, or skips and says what is missing."""
    missing = [name for name in ("ip", "tc", "ssh", "ssh-keygen", "unshare") if shutil.which(name) is None]
    missing += [] if sshd() else ["sshd"]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root, iproute2 and openssh-server; missing: {', '.join(missing) or 'root'}")
    if not ip("netns", "add", f"{TAG}-probe", check=False):
        pytest.skip("network namespaces cannot be made here")
    ip("netns", "del", f"{TAG}-probe")
    made = []

    def make(count):
        hosts = Hosts(tmp_path_factory.mktemp("hosts"), count)
        made.append(hosts)
        hosts.start()
        return hosts

    yield make
    for hosts in made:
        hosts.stop()


@pytest.fixture
def hosts(make_hosts):
    """Two hosts."""
    find_mpirun()
    return make_hosts(2)
