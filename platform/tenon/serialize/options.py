"""Defaults of ``load`` and ``save``: torch's ``torch.utils.serialization.config``.

``load`` and ``save`` hold the settings; ``skip_data`` and ``set_default_mmap_options`` are context managers.
"""

from __future__ import annotations

import sys
import threading
import warnings
from dataclasses import dataclass
from mmap import MAP_PRIVATE, MAP_SHARED

from tenon.config import environment
from tenon.errors import ArgumentError
from tenon.serialize.byte_order import LoadEndianness


@dataclass(slots=True)
class _Load:
    """``endianness`` is that of files without a byte order mark; ``calculate_storage_offsets`` has no effect,
    as it only speeds up torch's reader."""

    mmap: bool = False
    endianness: LoadEndianness | None = None
    mmap_flags: int | None = MAP_PRIVATE
    calculate_storage_offsets: bool = False


@dataclass(slots=True)
class _Save:
    """``storage_alignment`` is in bytes; ``use_pinned_memory_for_d2h`` has no effect on
    copies from a GPU."""

    compute_crc32: bool = True
    use_pinned_memory_for_d2h: bool = False
    storage_alignment: int = 64


load, save = _Load(), _Save()


class _Scope(threading.local):
    skip_data = False
    materialize_fake_tensors = False


scope = _Scope()


def weights_only(argument: bool | None) -> bool:
    """The effective value of ``weights_only``: the argument, or True by default, subject to the environment.

    ``TORCH_FORCE_WEIGHTS_ONLY_LOAD=1`` overrides False, ``TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1`` overrides
    None.
    """
    always, never = (
        environment(f"TORCH_FORCE_{middle}WEIGHTS_ONLY_LOAD") in ("1", "y", "yes", "true")
        for middle in ("", "NO_")
    )
    if always and never:
        raise ArgumentError(
            "Only one of `TORCH_FORCE_WEIGHTS_ONLY_LOAD` or `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD` should be "
            "set, but both were set. Unset one."
        )
    if never and argument is None:
        warnings.warn(
            "Environment variable TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD detected, since the `weights_only` "
            "argument was not given to load: forcing weights_only=False.",
            UserWarning,
            stacklevel=3,
        )
        return False
    return always or argument is not False


class skip_data:
    """Context manager: ``save`` and ``load`` of this thread skip the tensors' data.

    ``save`` reserves zeroed space, to be filled later; ``load`` returns uninitialized tensors.

    >>> import io, tenon
    >>> with skip_data():
    ...     tenon.save(tenon.ones(2), file := io.BytesIO())
    >>> tenon.load(io.BytesIO(file.getvalue()))
    tensor([0., 0.])
    """

    def __init__(self, materialize_fake_tensors: bool = False) -> None:
        self.materialize_fake_tensors = materialize_fake_tensors  # without effect: there are no fake tensors
        self._previous = (False, False)

    def __enter__(self) -> None:
        self._previous = (scope.skip_data, scope.materialize_fake_tensors)
        scope.skip_data, scope.materialize_fake_tensors = True, self.materialize_fake_tensors

    def __exit__(self, *exc: object) -> None:
        scope.skip_data, scope.materialize_fake_tensors = self._previous


def get_default_load_endianness() -> LoadEndianness | None:
    """The byte order assumed for files without a byte order mark; None means little endian."""
    return load.endianness


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """Set the byte order assumed for files without a byte order mark."""
    if not isinstance(endianness, LoadEndianness) and endianness is not None:
        raise TypeError(
            f"Invalid argument type in function set_default_load_endianness: {endianness!r} is not a "
            "LoadEndianness."
        )
    load.endianness = endianness


def unmarked() -> bytes:
    """The byte order assumed for a file without a mark, ``b"little"`` or ``b"big"`` like a mark."""
    if load.endianness is LoadEndianness.NATIVE:
        return sys.byteorder.encode()
    return b"big" if load.endianness is LoadEndianness.BIG else b"little"


def get_crc32_options() -> bool:
    """Whether ``save`` writes checksums of records."""
    return save.compute_crc32


def set_crc32_options(compute_crc32: bool) -> None:
    """Set whether ``save`` writes checksums; without them, only torch and tenon can read the files."""
    save.compute_crc32 = compute_crc32


def get_default_mmap_options() -> int | None:
    """``mmap.MAP_PRIVATE``, or ``MAP_SHARED`` if writes to tensors of a mapped file change it."""
    return load.mmap_flags


class set_default_mmap_options:
    """Set how ``load(mmap=True)`` maps: with ``MAP_SHARED`` writes to tensors change the file.

    Takes effect at the call; as a context manager, restores the former setting on exit.
    """

    def __init__(self, flags: int) -> None:
        if flags not in (MAP_PRIVATE, MAP_SHARED):
            raise ArgumentError(
                "Invalid argument in function set_default_mmap_options, expected mmap.MAP_PRIVATE or "
                f"mmap.MAP_SHARED, but got {flags}"
            )
        self._previous = load.mmap_flags
        load.mmap_flags = flags

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        load.mmap_flags = self._previous
