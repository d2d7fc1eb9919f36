"""PyTorch's path ``torch._utils_internal``: where files beside the package lie, for tests."""

from __future__ import annotations

import os
import tempfile

__all__ = ["get_file_path", "get_file_path_2", "get_writable_path"]

IS_FBSOURCE = False


def get_file_path(*path_components: str) -> str:
    """A path under the folder of this package."""
    return os.path.join(os.path.dirname(os.path.dirname(__file__)), *path_components)


def get_file_path_2(*path_components: str) -> str:
    """The components joined."""
    return os.path.join(*path_components)


def get_writable_path(path: str) -> str:
    """``path`` if files can be written there, a new folder elsewhere if not."""
    return path if os.access(path, os.W_OK) else tempfile.mkdtemp(suffix=os.path.basename(path))
