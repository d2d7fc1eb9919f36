"""``mpirun -n 4 python -m tenon.distributed train.py``: run a script under the failure hooks from line one.

A script that fails before its own ``import tenon`` leaves the other ranks waiting, and a bare
``raise SystemExit(3)`` is invisible to hooks on Python 3.11; started this way, both end the job at once.
"""

from __future__ import annotations

import os
import runpy
import sys

USAGE = "usage: mpirun -n N python -m tenon.distributed SCRIPT [ARGUMENTS]"


def main() -> None:
    """Run the script named by the first argument as ``__main__``."""
    if len(sys.argv) < 2:
        sys.exit(USAGE)
    del sys.argv[0]
    script = sys.argv[0]
    if not os.path.isfile(script):
        sys.exit(f"the script {script!r} does not exist in {os.getcwd()}. {USAGE}")
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
