"""The MPI section of ``tenon doctor``: the versions of mpi4py and of the library that it loads."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata, util

_PROBE = """
import mpi4py
mpi4py.rc.initialize = False
from tenon_mpi.library import find_mpi
print(find_mpi().Get_library_version())
"""


def rows() -> Iterator[tuple[str, str]]:
    """Yield mpi4py's version, and the library it loads or the reason why it loads none."""
    if util.find_spec("mpi4py") is None:
        yield "mpi4py", "not installed; `pip install 'tenon-platform[mpich]'` brings it and an MPI library"
        return
    yield "mpi4py", metadata.version("mpi4py")
    # In a process of its own: loading an MPI library may abort, and must not initialise MPI here.
    probe = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True, timeout=60)
    lines = (probe.stdout if probe.returncode == 0 else probe.stderr).strip().splitlines()
    if probe.returncode == 0:
        yield "library", " ".join(lines[0].split())
    else:
        yield "library", f"cannot be loaded: {lines[-1] if lines else f'exit code {probe.returncode}'}"
