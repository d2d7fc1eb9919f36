"""How files are read and written where no argument says: torch's ``torch.utils.serialization.config``.

``load`` and ``save`` are two records that anyone may set; ``skip_data`` and ``set_default_mmap_options`` set
something for a ``with`` block.
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
    """``endianness`` is that of files that do not say; ``calculate_storage_offsets`` speeds up torch's own
    reader alone."""

    mmap: bool = False
    endianness: LoadEndianness | None = None
    mmap_flags: int | None = MAP_PRIVATE
    calculate_storage_offsets: bool = False


@dataclass(slots=True)
class _Save:
    """``storage_alignment`` is in bytes; ``use_pinned_memory_for_d2h`` changes nothing: copies from a GPU go
    as they always do."""

    compute_crc32: bool = True
    use_pinned_memory_for_d2h: bool = False
    storage_alignment: int = 64


load, save = _Load(), _Save()


class _Scope(threading.local):
    skip_data = False
    materialize_fake_tensors = False


scope = _Scope()


def weights_only(asked: bool | None) -> bool:
    """Whether a file may hold weights alone: what was asked, or True, if the environment agrees.

    ``TORCH_FORCE_WEIGHTS_ONLY_LOAD=1`` overrules False, ``TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1`` no answer.
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
    if never and asked is None:
        warnings.warn(
            "Environment variable TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD detected, since the `weights_only` "
            "argument was not given to load: forcing weights_only=False.",
            UserWarning,
            stacklevel=3,
        )
        return False
    return always or asked is not False


class skip_data:
    """Files of this thread are written with zeros for numbers, and read without reading the numbers.

    Inside ``save`` leaves the space, to be filled later; ``load`` gives tensors with anything in them.

    >>> import io, tenon
    >>> with skip_data():
    ...     tenon.save(tenon.ones(2), file := io.BytesIO())
    >>> tenon.load(io.BytesIO(file.getvalue()))
    tensor([0., 0.])
    """

    def __init__(self, materialize_fake_tensors: bool = False) -> None:
        self.materialize_fake_tensors = materialize_fake_tensors  # of which there are none here
        self._before = (False, False)

    def __enter__(self) -> None:
        self._before = (scope.skip_data, scope.materialize_fake_tensors)
        scope.skip_data, scope.materialize_fake_tensors = True, self.materialize_fake_tensors

    def __exit__(self, *exc: object) -> None:
        scope.skip_data, scope.materialize_fake_tensors = self._before


def get_default_load_endianness() -> LoadEndianness | None:
    """What files without a mark are taken for; None means little."""
    return load.endianness


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """Say what files without a mark are to be taken for."""
    if not isinstance(endianness, LoadEndianness) and endianness is not None:
        raise TypeError(
            f"Invalid argument type in function set_default_load_endianness: {endianness!r} is no "
            "LoadEndianness."
        )
    load.endianness = endianness


def unmarked() -> bytes:
    """The byte order of a file without a mark, as a file would spell it."""
    if load.endianness is LoadEndianness.NATIVE:
        return sys.byteorder.encode()
    return b"big" if load.endianness is LoadEndianness.BIG else b"little"


def get_crc32_options() -> bool:
    """Whether records are written with their checksums."""
    return save.compute_crc32


def set_crc32_options(compute_crc32: bool) -> None:
    """Write records without checksums, as which only torch and tenon read them; or with them again."""
    save.compute_crc32 = compute_crc32


def get_default_mmap_options() -> int | None:
    """``mmap.MAP_PRIVATE``, or ``MAP_SHARED`` if tensors of mapped files write into them."""
    return load.mmap_flags


class set_default_mmap_options:
    """What ``load(mmap=True)`` does: under ``MAP_SHARED`` tensors change the file, under ``MAP_PRIVATE`` not.

    In force from the call on; used in a ``with``, to its end.
    """

    def __init__(self, flags: int) -> None:
        if flags not in (MAP_PRIVATE, MAP_SHARED):
            raise ArgumentError(
                "Invalid argument in function set_default_mmap_options, expected mmap.MAP_PRIVATE or "
                f"mmap.MAP_SHARED, but got {flags}"
            )
        self._before = load.mmap_flags
        load.mmap_flags = flags

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        load.mmap_flags = self._before
