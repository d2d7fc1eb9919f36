"""PyTorch's ``.pt`` files: a zip archive of a pickled object tree and the bytes of its storages.

Written so that PyTorch loads them with ``weights_only=True``, and read without PyTorch. Every record has a
CRC-32, which is checked while it is read; its size is compared with that in the object tree before memory is
allocated.
"""

from __future__ import annotations

import hashlib
import io
import mmap
import struct
import sys
import warnings
import zipfile
import zlib
from typing import BinaryIO, NoReturn, cast

import numpy as np

from tenon import dtypes
from tenon.errors import CheckpointError
from tenon.serialize import options
from tenon.serialize.contents import tensors_and_storages_of
from tenon.serialize.layout import LoadedStorage, StorageTable
from tenon.serialize.limits import Allowance, cut, short
from tenon.serialize.pickle_reader import PickleReader
from tenon.serialize.pickle_writer import PickleWriter
from tenon.serialize.placement import Placement
from tenon.serialize.safe_globals import globals_in
from tenon.serialize.torch_globals import StorageClass, torch_globals
from tenon.serialize.unchecked import warn_unchecked
from tenon.serialize.zip_checks import BROKEN, data_offset, opened
from tenon.serialize.zip_writer import Writable, ZipWriter

MAGIC = b"PK\x03\x04"
#: What reads other archives, by a file in them.
_PROGRAMS = {
    "module.json": " It is a trace: read it by tenon.jit.load.",
    "graph.json": " It is an exported program: read it by tenon.export.load.",
}
_CHUNK = 1 << 24


class Archive:
    """An object prepared for writing: ``write`` fails only if the disk does."""

    def __init__(self, obj: object) -> None:
        self._tensors = tensors_and_storages_of(obj)  # kept alive until the bytes are written
        writer = PickleWriter(StorageTable(self._tensors))
        self._tree = writer.dump(obj)
        if options.scope.skip_data and any(t.device.type == "meta" for t in self._tensors):
            warnings.warn(
                "Serializing tensors on the meta device under skip_data context manager is a no-op",
                stacklevel=3,
            )
        self._storages = writer.storages

    def write(self, file: Writable, name: str) -> None:
        """Write the archive to ``file``, with its records in the folder ``name``, as PyTorch does."""
        out = ZipWriter(file)
        out.record(f"{name}/data.pkl", self._tree)
        out.record(f"{name}/.format_version", b"1")
        out.record(f"{name}/.storage_alignment", str(options.save.storage_alignment).encode())
        out.record(f"{name}/byteorder", sys.byteorder.encode())
        digest = hashlib.sha256(self._tree)
        for storage in self._storages:
            if options.scope.skip_data:
                crc = out.space(f"{name}/data/{storage.key}", storage.nbytes)
            else:
                crc = out.record(f"{name}/data/{storage.key}", storage.fetch() if storage.nbytes else b"")
            digest.update(struct.pack("<I", crc))
        out.record(f"{name}/version", b"3\n")
        identity = str(int.from_bytes(digest.digest(), "big"))[:40].zfill(40)
        out.record(f"{name}/.data/serialization_id", identity.encode())
        out.finish()


def read(
    file: BinaryIO, placement: Placement, encoding: str = "utf-8", layers: bool = False, mapped: bool = False
) -> object:
    """The object in a ``.pt`` archive, which may hold layers of ``tenon.nn`` with ``layers``.

    With ``mapped``, tensors on the CPU are views of the mapped ``file``, which must be open for writing, and
    writes to them change it; their checksums, which such writes do not update, are not checked.
    """
    reader = _ArchiveReader(file, placement)
    if mapped:
        reader.mapped = mmap.mmap(file.fileno(), 0)
    tree = io.BytesIO(reader.record("data.pkl"))
    table = torch_globals(layers, reader.allowance)
    found = PickleReader(tree, table, reader.storage, placement.source, encoding, reader.allowance).load()
    if any(info.file_size and not hasattr(info, "CRC") for info in reader.infos.values()):
        warn_unchecked(placement.source, "it was saved without them (set_crc32_options, skip_data)")
    return found


def unknown_globals(file: BinaryIO, source: str) -> list[str]:
    """The globals in the object tree that a load of weights refuses, each once."""
    tree = _ArchiveReader(file, Placement("meta", source)).record("data.pkl")
    known = torch_globals()
    try:
        return [name for name in dict.fromkeys(globals_in(tree)) if name not in known]
    except ValueError as error:
        raise CheckpointError(
            f"cannot inspect {source}: its object tree is damaged ({cut(error)})."
        ) from error


def verify(file: BinaryIO, source: str) -> None:
    """Read every record and check its CRC-32 without building anything."""
    archive = _ArchiveReader(file, Placement("meta", source))
    for info in archive.infos.values():
        archive.check(info)


class _ArchiveReader:
    """The records of an archive, each checked when it is read."""

    def __init__(self, file: BinaryIO, placement: Placement) -> None:
        self.placement = placement
        self.mapped: mmap.mmap | None = None
        self._file = file
        self.source = placement.source
        self.allowance = Allowance.of(file)
        try:
            self._zip = opened(file, self.allowance)
            infos = self._zip.infolist()
        except CheckpointError as error:
            raise CheckpointError(f"cannot load {self.source}: {cut(error)}.") from error
        except (*BROKEN, OSError) as error:
            self._broken(error)
        for info in infos:
            if not info.CRC:
                del info.CRC  # not computed by the writer; zipfile checks none without it
        self.infos = {info.filename: info for info in infos}
        if len(self.infos) != len(infos):
            self._broken(zipfile.BadZipFile("a record is listed twice"))
        trees = [n for n in self.infos if n.endswith("/data.pkl") and n.count("/") == 1]
        if len(trees) != 1:
            raise CheckpointError(
                f"cannot load {self.source}: it is a zip archive, but not one that torch.save wrote (no "
                f"data.pkl).{next((text for name, text in _PROGRAMS.items() if name in self.infos), '')}"
            )
        self.prefix = trees[0].removesuffix("data.pkl")
        if self.prefix + "constants.pkl" in self.infos:
            raise CheckpointError(
                f"cannot load {self.source}: it is a TorchScript archive, which is a program. "
                "Save the state_dict() of the scripted module with torch.save instead."
            )
        self._swap = self._byte_order() != sys.byteorder
        self._storages: dict[str, LoadedStorage] = {}

    def record(self, name: str) -> bytes:
        """The bytes of a small record."""
        info = self._info(name)
        memory = np.empty(info.file_size, np.uint8) if info.compress_type == zipfile.ZIP_STORED else None
        if memory is not None:
            self._fill(info, memory)
            return memory.tobytes()
        try:
            return self._zip.read(info)
        except (*BROKEN, OSError) as error:
            self._broken(error, info.filename)

    def storage(self, identity: object) -> LoadedStorage:
        """The storage that a persistent id of the object tree refers to."""
        if type(identity) is not tuple or len(identity) != 5 or identity[0] not in ("storage", b"storage"):
            raise CheckpointError(f"a reference {short(identity)} is not one to a storage")
        _, kind, key, location, count = identity
        location = location.decode("ascii") if type(location) is bytes else location
        if (
            not isinstance(kind, StorageClass)
            or type(key) is not str
            or type(location) is not str
            or type(count) is not int
        ):
            raise CheckpointError(f"a reference to storage {short(key)} is malformed")
        if key in self._storages:
            return _as_dtype(self._storages[key], kind.dtype)
        info = self._info(f"data/{key}")
        nbytes = count * kind.dtype.itemsize
        if info.file_size != nbytes:
            raise CheckpointError(
                f"storage {short(key)} holds {info.file_size} bytes where the object tree states {nbytes}"
            )
        if self._swap and not kind.typed:
            raise CheckpointError(
                f"storage {short(key)} has no element type and the byte order of another kind of machine"
            )
        memory = None
        if self.placement.needs_data:
            memory = self._map(info)
            if memory is None:
                memory = np.empty(nbytes, np.uint8)
                if not options.scope.skip_data:
                    self._fill(info, memory)
            if self._swap:
                byteswap(memory, kind.dtype)
        storage = LoadedStorage(memory, nbytes, kind.dtype, self.placement.device("cpu"))
        self._storages[key] = self.placement.place(storage, location)
        return self._storages[key]

    def _map(self, info: zipfile.ZipInfo) -> np.ndarray | None:
        """A view of the mapped file over the data of a record; None if these must be copied."""
        if self.mapped is None or self._swap or self.placement.device("cpu").type != "cpu":
            return None
        return np.ndarray((info.file_size,), np.uint8, self.mapped, data_offset(self._file, info))

    def check(self, info: zipfile.ZipInfo) -> None:
        """Read a record and check its CRC-32."""
        try:
            with self._zip.open(info) as record:
                while record.read(_CHUNK):
                    pass
        except (*BROKEN, OSError) as error:
            self._broken(error, info.filename)

    def _fill(self, info: zipfile.ZipInfo, memory: np.ndarray) -> None:
        """Read a record into ``memory``, bytes; zipfile checks its CRC-32."""
        view, position = memory.data, 0
        if info.compress_type == zipfile.ZIP_STORED and callable(getattr(self._file, "readinto", None)):
            self._fill_from_file(info, view)
            return
        try:
            with self._zip.open(info) as record:
                while data := record.read(_CHUNK):
                    view[position : position + len(data)] = data
                    position += len(data)
        except (*BROKEN, OSError) as error:
            self._broken(error, info.filename)
        if position != len(view):
            self._broken(EOFError(f"{position} of {len(view)} bytes are there"), info.filename)

    def _fill_from_file(self, info: zipfile.ZipInfo, view: memoryview) -> None:
        """Read a record into ``view`` by ``readinto``, as zipfile would copy the data once more."""
        crc, position, file = 0, 0, cast(io.BufferedIOBase, self._file)
        try:
            file.seek(data_offset(self._file, info))
            while count := file.readinto(view[position : position + _CHUNK]):
                crc = zlib.crc32(view[position : position + count], crc)
                position += count
        except (*BROKEN, OSError) as error:
            self._broken(error, info.filename)
        if position != len(view):
            self._broken(EOFError(f"{position} of {len(view)} bytes are there"), info.filename)
        if crc != getattr(info, "CRC", crc):
            self._broken(zipfile.BadZipFile(f"Bad CRC-32 for file {short(info.filename)}"), info.filename)

    def _info(self, name: str) -> zipfile.ZipInfo:
        """The entry of a record in the directory; raises if it is missing or inconsistent."""
        info = self.infos.get(self.prefix + name)
        if info is None:
            self._broken(KeyError(f"the record {short(name)} is missing"))
        return info

    def _byte_order(self) -> str:
        """The byte order of the storages, as in ``sys.byteorder``."""
        order = self.record("byteorder") if self.prefix + "byteorder" in self.infos else options.unmarked()
        if order not in (b"little", b"big"):
            self._broken(ValueError(f"unknown byte order {short(order)}"))
        return order.decode()

    def _broken(self, error: BaseException, record: str = "") -> NoReturn:
        """Raise ``CheckpointError`` from ``error``."""
        where = f"record {short(record)}: " if record else ""
        plain = error.args and not isinstance(error, UnicodeDecodeError)  # whose first argument is the codec
        problem = str(error.args[0]) if plain else str(error) or type(error).__name__
        raise CheckpointError(
            f"cannot load {self.source}: the file is truncated or damaged ({where}{cut(problem)}). Its "
            "contents cannot be trusted, "
            "so nothing was loaded. Take another copy or an earlier checkpoint."
        ) from error


def byteswap(memory: np.ndarray, kind: dtypes.dtype) -> None:
    """Reverse the bytes of all elements of ``memory``, which are of ``kind``, in place."""
    width = kind.itemsize // 2 if kind.is_complex else kind.itemsize
    if width > 1:
        memory.view(f"u{width}").byteswap(inplace=True)


def _as_dtype(storage: LoadedStorage, kind: dtypes.dtype) -> LoadedStorage:
    """``storage`` with element type ``kind``, as references to one storage may differ in it."""
    if storage.dtype is kind:
        return storage
    return LoadedStorage(storage.array, storage.nbytes, kind, storage.device)
