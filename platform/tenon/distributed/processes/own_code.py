"""Tell the user's own code from that of tenon, Python and installed packages."""

from __future__ import annotations

import functools
import sysconfig


def is_own(module: str, file: str) -> bool:
    """Whether a frame of ``module`` in ``file`` is of the user's own code."""
    package = module.partition(".")[0]
    return package != "tenon" and not package.startswith("tenon_") and not _is_installed(file)


@functools.cache
def _installed() -> tuple[str, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib", "scripts")
    return tuple(f"{path}/" for name in names if (path := sysconfig.get_path(name)))


@functools.cache
def _is_installed(file: str) -> bool:
    return file.startswith(("<", *_installed()))
