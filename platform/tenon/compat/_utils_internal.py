"""PyTorch's module ``torch._utils_internal``: paths of files in the package, for tests."""

from __future__ import annotations

import os
import tempfile

__all__ = ["get_file_path", "get_file_path_2", "get_writable_path"]

IS_FBSOURCE = False


def get_file_path(*path_components: str) -> str:
    """Return a path in the folder of this package."""
    return os.path.join(os.path.dirname(os.path.dirname(__file__)), *path_components)


def get_file_path_2(*path_components: str) -> str:
    """Join the components."""
    return os.path.join(*path_components)


def get_writable_path(path: str) -> str:
    """Return ``path`` if it is writable, else a new temporary folder."""
    return path if os.access(path, os.W_OK) else tempfile.mkdtemp(suffix=os.path.basename(path))
