"""Limit each rank to its share of the cores, before NumPy starts one BLAS thread per core in every rank.

Two ranks with two BLAS threads each on two cores run slower than one rank alone. The libraries read their
environment variables when they are loaded, so ``import tenon`` sets them first. A variable that the user has
set is not changed, unless ``TENON_NUM_THREADS`` overrides all of them. If NumPy is already loaded, its
OpenBLAS is limited through the library's own setter.

Imported by ``import tenon`` through ``startup.py``: keep it free of heavy imports.
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping

from tenon.config import DECIDED
from tenon.distributed.processes.launcher import RankFacts
from tenon.errors import ConfigError

SETTING = "TENON_NUM_THREADS"
VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMBA_NUM_THREADS",
)
OPENBLAS_SETTERS = (
    "scipy_openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads",
    "openblas_set_num_threads",
)


def threads_per_rank(facts: RankFacts, environment: MutableMapping[str, str]) -> int:
    """Threads for each rank of this node: Slurm's cores per task, else an equal share of the usable cores."""
    granted = environment.get("SLURM_CPUS_PER_TASK", "")
    if granted.isdigit() and int(granted) > 0:
        return int(granted)
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, usable // facts.local_size)


def limit_threads(facts: RankFacts | None, environment: MutableMapping[str, str]) -> int | None:
    """Set the thread variables in ``environment``; return the number set, or None if none was changed.

    ``TENON_NUM_THREADS`` sets them all. Otherwise, if several ranks share this node, the unset ones are set
    to this rank's share of the cores; all libraries obey ``OMP_NUM_THREADS``, so nothing is changed if the
    user has set it.
    """
    text = environment.get(SETTING, "").strip()
    if text:
        if not text.isdecimal() or int(text) < 1:
            raise ConfigError(
                f"{SETTING}={text!r} is not a positive number of threads. Give one, or unset it."
            )
        threads = int(text)
        DECIDED["threads"] = SETTING
        environment.update(dict.fromkeys(VARIABLES, text))
    elif facts is None or facts.local_size < 2 or environment.get("OMP_NUM_THREADS"):
        return None
    else:
        threads = threads_per_rank(facts, environment)
        DECIDED["threads"] = f"this rank's share of the cores: {facts.local_size} ranks on this node"
        for name in VARIABLES:
            environment.setdefault(name, str(threads))
    if "numpy" in sys.modules:
        _limit_loaded_openblas(int(environment["OPENBLAS_NUM_THREADS"]))
    return threads


def _limit_loaded_openblas(threads: int) -> bool:
    """Limit the threads of an OpenBLAS that NumPy has loaded (Linux only); return whether there was one."""
    import ctypes

    try:
        with open("/proc/self/maps", encoding="utf-8") as maps:
            files = {line.split()[-1] for line in maps if "openblas" in line}
    except OSError:
        return False
    limited = False
    for path in sorted(file for file in files if ".so" in file):
        library = ctypes.CDLL(path)
        for name in OPENBLAS_SETTERS:
            setter = getattr(library, name, None)
            if setter is not None:
                setter(ctypes.c_int(threads))
                limited = True
                break
    return limited
