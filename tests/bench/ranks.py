"""What the benches of several ranks share: they start themselves under ``mpirun`` and take turns inside each
rank, so that a slow minute of the machine is slow for all contestants."""

import argparse
import atexit
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

from tenon.config import process_environment
from tenon.testing.suites.communicator import OPEN_MPI, find_mpirun


def main(description, measure, ranks=2, **options):
    """Start ``measure(parsed options)`` on some ranks, or be one of them.

    ``options`` are what ``add_argument`` takes, by name, beside those that all benches of ranks have.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", "--ranks", type=int, default=ranks)
    for name, described in options.items():
        parser.add_argument(f"--{name}", **described)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json")
    parser.add_argument("--rendezvous", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rendezvous is None:
        raise SystemExit(start(given.ranks, sys.argv[1:]))
    measure(given)


def start(size, arguments):
    """Run this script on ``size`` ranks, one thread each; return the exit status."""
    with tempfile.TemporaryDirectory() as folder:
        threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        command = [find_mpirun(), "-n", str(size), sys.executable, sys.argv[0], *arguments]
        return subprocess.run(
            [*command, "--rendezvous", os.path.join(folder, "gloo")],
            env={**process_environment(), **OPEN_MPI, "TENON_MPI_NODES": "1", **threads},
        ).returncode


def join_gloo(rank, size, rendezvous):
    """torch.distributed with gloo, over a file; None where torch is not installed."""
    try:
        import torch
        import torch.distributed
    except ImportError:
        return None
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=size
    )
    atexit.register(torch.distributed.destroy_process_group)  # its threads end the process if they outlive it
    return torch


def in_turns(contestants, rounds, repeats, meet, clock=time.perf_counter):
    """Seconds a call: ``{name: [one number a round]}``; ``meet`` lets all ranks begin together.

    The order changes from round to round, alike on all ranks: what ran before leaves its mark on the caches.
    """
    found = {name: [] for name in contestants}
    for action in contestants.values():
        action()
    order = random.Random(0)
    for _ in range(rounds):
        for name in order.sample(list(contestants), len(contestants)):
            action = contestants[name]
            meet()
            begin = clock()
            for _ in range(repeats):
                action()
            found[name].append((clock() - begin) / repeats)
    return found


def summary(seconds):
    """Best and median."""
    return {name: {"min": min(all_), "median": statistics.median(all_)} for name, all_ in seconds.items()}


def write(file, **found):
    """The results as JSON, if asked for."""
    if file:
        with open(file, "w", encoding="utf-8") as out:
            json.dump(found, out, indent=1)
