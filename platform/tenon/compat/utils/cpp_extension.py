"""torch's ``torch.utils.cpp_extension``: C++ written against PyTorch's headers, which are not here.

Importing it works, as packages do that at their top and fall back to Python where no compiler was found.
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

#: Where compilers for GPUs lie, in PyTorch; none is looked for here.
CUDA_HOME: str | None = None
ROCM_HOME: str | None = None


def get_default_build_root() -> str:
    """The folder in which PyTorch builds extensions; nothing is put there."""
    cache = environment("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.realpath(os.path.join(cache, "torch_extensions"))


def include_paths(device_type: str = "cpu") -> list[str]:
    """None: there are no headers."""
    return []


def library_paths(device_type: str = "cpu") -> list[str]:
    """None: there are no libraries."""
    return []


def _refused(name: str) -> Callable[..., NoReturn]:
    def refuse(*args: object, **options: object) -> NoReturn:
        raise UnsupportedError(
            f"torch.utils.cpp_extension.{name}: extensions in C++ need PyTorch's headers, which are not "
            "here. Write the function in Python with a torch.autograd.Function, or as an op "
            "(docs/guide/plugins.md)."
        )

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = "Refused: there are no headers of PyTorch to build with."
    return refuse


load = _refused("load")
load_inline = _refused("load_inline")
CppExtension = _refused("CppExtension")
CUDAExtension = _refused("CUDAExtension")
BuildExtension = _refused("BuildExtension")
