"""Run all checks on ranks that are processes: ``mpirun -n 4 python -m
tenon.testing.suites.communicator_run``."""

from __future__ import annotations

import sys
import traceback

from tenon.testing.suites import communicator_transfers  # noqa: F401 - its checks register themselves
from tenon.testing.suites.communicator_checks import CHECKS

__all__ = ["CHECKS"]


def main() -> None:
    """Run all checks on the process's communicator; rank 0 prints a line for each."""
    from tenon.distributed.processes.launch import launch

    communicator = launch()
    for name, function in CHECKS.items():
        problem = b""
        try:
            function(communicator)
        except Exception:
            problem = traceback.format_exc().encode()
            if communicator.rank != 0:
                sys.stderr.write(f"rank {communicator.rank}: {problem.decode()}")
        problems = communicator.all_gather_bytes(problem, name=name)
        if communicator.rank == 0:
            failed = [f"rank {rank}: {text.decode()}" for rank, text in enumerate(problems) if text]
            print(f"FAIL {name} {failed[0]!r}" if failed else f"PASS {name}", flush=True)


if __name__ == "__main__":
    main()
