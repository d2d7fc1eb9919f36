"""PyTorch's module ``torch.__config__``: the configuration of this installation, as text for bug reports."""

from __future__ import annotations

import platform

import numpy as np

from tenon.compat.version import __version__
from tenon.functions.settings import get_num_threads

__all__ = ["parallel_info", "show"]


def show() -> str:
    """Return the versions of tenon, Python and NumPy, and the BLAS library of NumPy."""
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    rows = [
        f"tenon {__version__} over NumPy {np.__version__}",
        f"Python {platform.python_version()} on {platform.system()} {platform.machine()}",
        f"BLAS: {blas.get('name', 'unknown')} {blas.get('version', '')}".rstrip(),
        "tenon itself has no compiled code; `tenon plugins` lists its plugins",
    ]
    return "tenon built with:\n" + "".join(f"  - {row}\n" for row in rows)


def parallel_info() -> str:
    """Return the number of threads that a kernel may use, as text."""
    return f"tenon/Parallel:\n\tget_num_threads() : {get_num_threads()}\n"


def _cxx_flags() -> str:
    """Return "": this package has no compiled code."""
    return ""
