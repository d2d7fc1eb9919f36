"""PyTorch's module ``torch.serialization``; the code is in ``tenon.serialize``."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import ModuleType
from typing import IO, Any, TypeAlias

from tenon.device import Device
from tenon.errors import CheckpointError
from tenon.serialize import FileLike, load, save, unsafe_globals
from tenon.serialize.byte_order import LoadEndianness
from tenon.serialize.options import (
    get_crc32_options,
    get_default_load_endianness,
    get_default_mmap_options,
    scope,
    set_crc32_options,
    set_default_load_endianness,
    set_default_mmap_options,
    skip_data,
)
from tenon.serialize.records import open_file, open_reader, open_writer
from tenon.serialize.safe_globals import add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals

__all__ = [
    "DEFAULT_PROTOCOL",
    "LoadEndianness",
    "SourceChangeWarning",
    "add_safe_globals",
    "check_module_version_greater_or_equal",
    "clear_safe_globals",
    "get_crc32_options",
    "get_default_load_endianness",
    "get_default_mmap_options",
    "get_safe_globals",
    "get_unsafe_globals_in_checkpoint",
    "load",
    "safe_globals",
    "save",
    "set_crc32_options",
    "set_default_load_endianness",
    "set_default_mmap_options",
    "skip_data",
]


DEFAULT_PROTOCOL = 2
#: The annotation of ``map_location``.
MAP_LOCATION: TypeAlias = Callable[[Any, str], Any] | Device | str | dict[str, str] | None
_serialization_tls = scope
_open_file_like, _open_zipfile_reader, _open_zipfile_writer = open_file, open_reader, open_writer


class SourceChangeWarning(Warning):
    """PyTorch's warning that the source of a saved module has changed; it is never issued here."""


def get_unsafe_globals_in_checkpoint(f: FileLike) -> list[str]:
    """Return the globals in a ``.pt`` file that ``load`` would reject; nothing is imported or run.

    >>> import io, tenon
    >>> tenon.save(tenon.nn.Linear(2, 3), file := io.BytesIO())
    >>> get_unsafe_globals_in_checkpoint(io.BytesIO(file.getvalue()))
    ['torch.nn.Linear']
    """
    return unsafe_globals(f)


def check_module_version_greater_or_equal(
    module: ModuleType, req_version_tuple: tuple[int, ...], error_if_malformed: bool = True
) -> bool:
    """Whether ``module.__version__`` is at least ``req_version_tuple``; CheckpointError if it is
    malformed."""
    try:
        parts = module.__version__.split(".")
        version = tuple(type(minimum)(part) for minimum, part in zip(req_version_tuple, parts, strict=False))
        if len(version) < len(req_version_tuple):
            raise ValueError(f"{len(version)} parts")
        return version >= req_version_tuple
    except Exception as error:
        message = (
            f"'{module.__name__}' module version string is malformed '{module.__version__}' and cannot be "
            f"compared with tuple {req_version_tuple}"
        )
        if error_if_malformed:
            raise CheckpointError(message) from error
        warnings.warn(f"{message}, but continuing assuming that requirement is met", stacklevel=2)
        return True


def _is_zipfile(f: IO[bytes]) -> bool:
    """Whether an open file begins with the signature of a zip archive."""
    start = f.tell()
    head = f.read(4)
    f.seek(start)
    return bool(head == b"PK\x03\x04")
