"""PyTorch's format before 1.6: several pickles, then the bytes of the storages.

The object tree precedes the data that it needs. So it is read twice: first without data, which shows the
sizes of the storages, then, after these have been read, to build the tensors.
"""

from __future__ import annotations

import io
import pickletools
import struct
import sys
from typing import BinaryIO, NoReturn

import numpy as np

from tenon.errors import ArgumentError, CheckpointError
from tenon.serialize import options
from tenon.serialize.contents import tensors_and_storages_of
from tenon.serialize.layout import LoadedStorage, StorageTable
from tenon.serialize.limits import Allowance, cut, short
from tenon.serialize.pickle_reader import PickleReader
from tenon.serialize.pickle_writer import PickleWriter, is_typed
from tenon.serialize.placement import Placement
from tenon.serialize.torch_globals import StorageClass, torch_globals
from tenon.serialize.torch_zip import byteswap
from tenon.serialize.unchecked import warn_unchecked
from tenon.serialize.zip_writer import Writable

_MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
#: The first bytes of the pickle of the magic number, in every protocol from 2 on.
MAGIC = b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_PROTOCOL = 1001
#: Number of bytes for which memory is allocated before it is known that the file has them.
_AT_ONCE = 1 << 24


class OldArchive:
    """An object prepared for writing in this format: ``write`` fails only if the disk does."""

    def __init__(self, obj: object) -> None:
        if options.scope.skip_data:
            raise ArgumentError(
                "Cannot use skip_data=True with _use_new_zipfile_serialization=False: the format has no"
                " space to fill later. Leave one of them out."
            )
        self._tensors = tensors_and_storages_of(obj)  # kept alive until the bytes are written
        writer = PickleWriter(StorageTable(self._tensors), old=True)
        self._tree = writer.dump(obj)
        self._storages = writer.storages

    def write(self, file: Writable, name: str) -> None:
        """Write the object to ``file``; ``name`` is not used by this format."""
        sizes = {"short": 2, "int": 4, "long": 4}
        system = {
            "protocol_version": _PROTOCOL,
            "little_endian": sys.byteorder == "little",
            "type_sizes": sizes,
        }
        for plain in (_MAGIC_NUMBER, _PROTOCOL, system):
            file.write(_pickled(plain))
        file.write(self._tree)
        file.write(_pickled([storage.key for storage in self._storages]))
        for storage in self._storages:
            width = storage.dtype.itemsize if storage.dtype and is_typed(storage) else 1
            file.write(struct.pack("<q", storage.nbytes // width))
            file.write(storage.fetch().data if storage.nbytes else b"")


def _pickled(plain: object) -> bytes:
    """The pickle of a value without tensors."""
    return PickleWriter(StorageTable([])).dump(plain)


def read(file: BinaryIO, placement: Placement, encoding: str = "utf-8", layers: bool = False) -> object:
    """The object in a file of the old format; with ``layers`` it may hold layers of ``tenon.nn``."""
    source, allowance = placement.source, Allowance.of(file)
    if _simple(file, source) != _MAGIC_NUMBER or _simple(file, source) != _PROTOCOL:
        raise CheckpointError(
            f"cannot load {source}: it begins like an old PyTorch file, but its protocol is unknown."
        )
    system = _simple(file, source)
    tree = _skip(file, source)
    listed = _simple(file, source)
    keys = [_text(key) for key in listed] if type(listed) is list else [None]
    if type(system) is not dict or None in keys or len(set(keys)) < len(keys):
        raise CheckpointError(f"cannot load {source}: its header or its list of storages is damaged.")
    names = [key for key in keys if key is not None]
    storages = _Storages(
        file, names, placement, swap=system.get("little_endian", True) != (sys.byteorder == "little")
    )
    # Read twice: the first pass shows the element size of each storage, which precedes no storage's data.
    PickleReader(
        io.BytesIO(tree), torch_globals(layers, allowance), storages.announce, source, encoding, allowance
    ).load()
    storages.read_all()
    allowance = Allowance(allowance.size)
    found = PickleReader(
        io.BytesIO(tree), torch_globals(layers, allowance), storages.find, source, encoding, allowance
    ).load()
    warn_unchecked(source, "files in PyTorch's format of before 1.6 have none")
    return found


def _simple(file: BinaryIO, source: str) -> object:
    """Read a pickle of plain values."""
    return PickleReader(file, {}, _no_storage, source).load()


def _no_storage(identity: object) -> NoReturn:
    raise CheckpointError("a reference to a storage stands outside the object tree")


def _skip(file: BinaryIO, source: str) -> bytes:
    """Read one pickle without building its values; return its bytes."""
    start = file.tell()
    try:
        for _ in pickletools.genops(file):
            pass
    except (ValueError, struct.error, MemoryError, OverflowError) as error:
        raise CheckpointError(f"cannot load {source}: its object tree is damaged ({cut(error)}).") from error
    end = file.tell()
    file.seek(start)
    return file.read(end - start)


def _text(value: object) -> str | None:
    """``value`` as a string, which may be one of Python 2; None if it is not a string."""
    if type(value) is bytes and value.isascii():
        return value.decode("ascii")
    return value if type(value) is str else None


class _Storages:
    """The storages of a file, whose list has ``keys``; ``swap`` if its byte order is not the machine's."""

    def __init__(self, file: BinaryIO, keys: list[str], placement: Placement, *, swap: bool) -> None:
        self._file, self._keys, self._placement, self._swap = file, dict.fromkeys(keys), placement, swap
        self._announced: dict[str, tuple[StorageClass, str, int]] = {}
        self._storages: dict[str, LoadedStorage] = {}
        self._views: dict[tuple[int, int, str], LoadedStorage] = {}

    def announce(self, identity: object) -> LoadedStorage:
        """The first pass: record type, location and length of a storage; return one on ``meta``."""
        kind, key, location, count, view = self._parse(identity)
        if key not in self._keys or count < 0:
            raise CheckpointError(
                f"storage {short(key)} is not in the file's list of storages, or has size {count}"
            )
        self._announced[key] = (kind, location, count)
        length = count if view is None else view[1]
        return LoadedStorage(
            None, length * kind.dtype.itemsize, kind.dtype, Placement("meta", "").device("cpu")
        )

    def read_all(self) -> None:
        """Read the bytes of all storages, in the order of the list."""
        source = self._placement.source
        for key in self._keys:
            if key not in self._announced:
                raise CheckpointError(
                    f"cannot load {source}: storage {short(key)} belongs to no tensor, so its size is"
                    " unknown."
                )
            kind, location, count = self._announced[key]
            header, nbytes = self._file.read(8), count * kind.dtype.itemsize
            if len(header) != 8 or struct.unpack("<q", header)[0] != count:
                raise CheckpointError(
                    f"cannot load {source}: the size of storage {short(key)} is damaged, or the"
                    " file is truncated."
                )
            data = _exactly(self._file, nbytes)
            if data is None:
                raise CheckpointError(
                    f"cannot load {source}: the file ends inside storage {short(key)}; it was truncated. "
                    "Take another copy."
                )
            if self._swap:
                byteswap(data, kind.dtype)
            storage = LoadedStorage(data, nbytes, kind.dtype, self._placement.device("cpu"))
            self._storages[key] = self._placement.place(storage, location)

    def find(self, identity: object) -> LoadedStorage:
        """The second pass: the storage, or part of one, that a persistent id refers to."""
        kind, key, _, _, view = self._parse(identity)
        storage = self._storages[key]
        if view is None:
            return storage
        if view not in self._views:
            low, size = view[0] * kind.dtype.itemsize, view[1] * kind.dtype.itemsize
            part = None if storage.array is None else storage.array[low : low + size]
            self._views[view] = LoadedStorage(part, size, kind.dtype, storage.device)
        return self._views[view]

    def _parse(self, identity: object) -> tuple[StorageClass, str, str, int, tuple[int, int, str] | None]:
        """Type, key, location and length of a storage, and the ``_part`` of it that is meant."""
        if type(identity) is tuple and len(identity) == 6 and identity[0] in ("storage", b"storage"):
            _, kind, key, location, count, view = identity
            key, location = _text(key), _text(location)
            part = _part(view, count)
            if (
                isinstance(kind, StorageClass)
                and type(key) is str
                and type(location) is str
                and type(count) is int
            ):
                return kind, key, location, count, part
        raise CheckpointError(f"a reference {short(identity)} is not one to a storage")


def _part(view: object, count: object) -> tuple[int, int, str] | None:
    """Offset, length and key of a part of a storage of ``count`` elements, as in files before 0.4.

    None for the whole storage.
    """
    if view is None:
        return None
    if type(view) is tuple and len(view) == 3 and type(count) is int:
        key, start, size = _text(view[0]), view[1], view[2]
        if key is not None and type(start) is type(size) is int and 0 <= start <= start + size <= count:
            return start, size, key
    raise CheckpointError(f"a storage of {short(count)} elements has no part {short(view)}")


def _exactly(file: BinaryIO, nbytes: int) -> np.ndarray | None:
    """Read ``nbytes`` bytes as an array; None if the file is too short. Allocates as data are read."""
    if callable(getattr(file, "readinto", None)) and nbytes <= _AT_ONCE:
        memory = np.empty(nbytes, np.uint8)
        filled, read = 0, 1
        while read and filled < nbytes:
            read = file.readinto(memory.data[filled:])  # type: ignore[attr-defined]
            filled += read or 0
        return memory if filled == nbytes else None
    parts, left = [], nbytes
    while left:
        part = file.read(min(left, _AT_ONCE))
        if not part:
            return None
        parts.append(np.frombuffer(part, np.uint8))
        left -= len(part)
    return np.concatenate(parts) if parts else np.empty(0, np.uint8)
