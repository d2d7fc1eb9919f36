"""PyTorch's ``torch.utils.cpp_extension``: extensions in C++, which need PyTorch's headers and cannot be
built.

The import works, as packages import it at the top and fall back to Python if no compiler is found.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NoReturn

from tenon.config import environment
from tenon.errors import UnsupportedError

__all__ = [
    "BuildExtension",
    "CUDAExtension",
    "CppExtension",
    "get_default_build_root",
    "include_paths",
    "library_paths",
    "load",
    "load_inline",
]

#: The folders of GPU compilers in PyTorch; None, as they are not used here.
CUDA_HOME: str | None = None
ROCM_HOME: str | None = None


def get_default_build_root() -> str:
    """Return the folder in which PyTorch builds extensions; it is not used here."""
    cache = environment("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.realpath(os.path.join(cache, "torch_extensions"))


def include_paths(device_type: str = "cpu") -> list[str]:
    """Return an empty list: there are no headers."""
    return []


def library_paths(device_type: str = "cpu") -> list[str]:
    """Return an empty list: there are no libraries."""
    return []


def _refused(name: str) -> Callable[..., NoReturn]:
    def refuse(*args: object, **options: object) -> NoReturn:
        raise UnsupportedError(
            f"torch.utils.cpp_extension.{name}: extensions in C++ need PyTorch's headers, which tenon does "
            "not have. Write the function in Python with a torch.autograd.Function, or as an op "
            "(docs/guide/plugins.md)."
        )

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = "Raise UnsupportedError: tenon has no C++ headers."
    return refuse


load = _refused("load")
load_inline = _refused("load_inline")
CppExtension = _refused("CppExtension")
CUDAExtension = _refused("CUDAExtension")
BuildExtension = _refused("BuildExtension")
