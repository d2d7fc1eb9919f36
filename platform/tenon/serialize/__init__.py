"""Save and load PyTorch's ``.pt`` and ``.safetensors`` files: atomic, checksummed, never executing code.

``save`` chooses the format by the suffix, by default PyTorch's; ``load`` reads both, including files that
PyTorch wrote. ``checkpoint`` adds sections, schema versions and folders for training loops.

>>> import io, tenon
>>> buffer = io.BytesIO()
>>> tenon.save({"step": 3, "weight": tenon.ones(2)}, buffer)
>>> tenon.load(io.BytesIO(buffer.getvalue()))
{'step': 3, 'weight': tensor([1., 1.])}
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
from collections.abc import Iterator
from mmap import MAP_SHARED
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, TypeGuard

from tenon.errors import (
    CheckpointError,
    CheckpointWriteError,
    FileObjectError,
    UnsafeCheckpointError,
    UnsupportedError,
)
from tenon.serialize import options, tensor_arrays, tensors, torch_legacy, torch_zip
from tenon.serialize.atomic import replacing
from tenon.serialize.placement import CallerError, MapLocation, Placement
from tenon.serialize.regular_files import open_regular
from tenon.serialize.zip_writer import Writable

__all__ = ["load", "save", "verify"]

#: A path, or a binary file object.
FileLike: TypeAlias = str | os.PathLike[str] | BinaryIO | io.IOBase
SAFETENSORS = ".safetensors"


def save(
    obj: object,
    f: FileLike,
    pickle_module: object = pickle,
    pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,
) -> None:
    """Save tensors, plain containers and numbers to ``f``, a path or a file object open for writing.

    A path that ends in ``.safetensors`` is written in that format, any other in PyTorch's zip format, which
    ``torch.load`` reads. A path is replaced atomically once all bytes are on disk: after a crash, a kill or
    a full disk the former file is intact. Views and tied weights share memory again after loading. Modules
    that consist of layers of ``tenon.nn`` can be saved whole, in PyTorch's format. If ``obj`` contains any
    other object, nothing is written, and ``UnsavableError`` names its key path.

    With ``_use_new_zipfile_serialization=False`` the format is that of PyTorch before 1.6. No pickler is
    used: ``pickle_module`` must be Python's own, and every ``pickle_protocol`` from 2 on gives the same file,
    in protocol 2.
    """
    if pickle_module is not None and pickle_module is not pickle:
        raise UnsupportedError(
            f"save: pickle_module={getattr(pickle_module, '__name__', pickle_module)!r} cannot be used, "
            "because tenon "
            "pickles no objects. Leave it out, and save state_dict()s and plain values."
        )
    if not isinstance(pickle_protocol, int) or not 2 <= pickle_protocol <= pickle.HIGHEST_PROTOCOL:
        raise ValueError(
            f"save: pickle_protocol must be 2 to {pickle.HIGHEST_PROTOCOL}, not {pickle_protocol!r}."
        )
    prepare = torch_zip.Archive if _use_new_zipfile_serialization else torch_legacy.OldArchive
    if isinstance(f, (str, os.PathLike)):
        path = Path(f)
        is_safetensors = path.suffix == SAFETENSORS
        prepared = tensors.Packed(obj) if is_safetensors else prepare(obj)
        with replacing(path) as file:
            prepared.write(file, path.stem.encode("utf-8", "replace").decode())
        return
    if not _is_writable(f):
        raise FileObjectError(
            "expected 'f' to be string, path, or a file-like object with a 'write' attribute, got a "
            f"{type(f).__name__} (save: f must be a path or a file object with write())"
        )
    archive = prepare(obj)
    try:
        archive.write(f, "archive")
        flush = getattr(f, "flush", None)
        if callable(flush):
            flush()
    except OSError as error:
        raised = CheckpointWriteError(
            f"could not write to {_name_of(f)}: {error.strerror or error}. What it holds now is incomplete; "
            "save to a path "
            "to have a file replaced only when it is whole."
        )
        raised.errno = error.errno
        raise raised from error


def _is_writable(f: object) -> TypeGuard[Writable]:
    return callable(getattr(f, "write", None))


def load(
    f: FileLike,
    map_location: MapLocation = None,
    pickle_module: object = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,  # only ``encoding``, a string; others are an error
) -> Any:  # what the file has
    """Load a file written by ``save``, ``torch.save`` or safetensors, from a path or a file object.

    ``map_location`` is PyTorch's: a device for all tensors, a dict from saved to requested devices, or a
    function ``(storage, location)`` that returns the storage (moved or not) or None. A file that is truncated
    or damaged raises ``CheckpointError``; one with globals other than those of tensors, containers and
    numbers raises ``UnsafeCheckpointError``.

    No code in a checkpoint is ever executed. ``weights_only=False`` also reads layers of ``tenon.nn`` and
    whole modules made of them, but no other classes. ``mmap=True`` reads the file at a path into memory, as
    checking it needs every byte anyway; after ``set_default_mmap_options(MAP_SHARED)`` its tensors map the
    file, and writing to them changes it.
    """
    if pickle_module is not None and pickle_module is not pickle:
        raise UnsupportedError(
            f"load: pickle_module={getattr(pickle_module, '__name__', pickle_module)!r} cannot be used, "
            "because tenon "
            "executes no pickle. Leave it out."
        )
    encoding = pickle_load_args.pop("encoding", "utf-8")
    if pickle_load_args:
        raise TypeError(
            f"load: unknown argument {next(iter(pickle_load_args))!r}. Only `encoding` is passed on to "
            "pickles."
        )
    safe = options.weights_only(weights_only)
    mapped = options.load.mmap if mmap is None else mmap
    if mapped and not isinstance(f, (str, os.PathLike)):
        raise ValueError(
            f"f must be a file path in order to use the mmap argument, not a {type(f).__name__}."
        )
    shared = mapped and options.load.mmap_flags == MAP_SHARED
    with _reading(f, "rb+" if shared else "rb") as (file, source):
        if mapped and _format(file, source) == "legacy":
            raise CheckpointError(
                f"cannot load {source}: mmap can only be used with files saved with "
                f"`torch.save({f}, _use_new_zipfile_serialization=True)`. Leave mmap out."
            )
        try:
            return _read(file, Placement(map_location, source), encoding, not safe, shared)
        except CallerError as carried:
            raise carried.error from None


def verify(f: FileLike) -> None:
    """Read all of ``f``, without loading tensors; raise ``CheckpointError`` if any checksum is wrong."""
    with _reading(f) as (file, source):
        start, kind = file.tell(), _format(file, source)
        if kind == "zip":
            torch_zip.verify(file, source)
        elif kind == "safetensors":
            tensors.verify(file, source)
        file.seek(start)
        _read(file, Placement("meta", source), "utf-8", layers=True)


def unsafe_globals(f: FileLike) -> list[str]:
    """The globals in a ``.pt`` file that ``load`` refuses; no tensor is read."""
    with _reading(f) as (file, source):
        if _format(file, source) != "zip":
            raise CheckpointError(
                f"cannot inspect {source}: expected a file that torch.save wrote in its zip format."
            )
        return torch_zip.unknown_globals(file, source)


def _read(file: BinaryIO, placement: Placement, encoding: str, layers: bool, shared: bool = False) -> object:
    """Load ``file`` in its format; the arguments are those of ``torch_zip.read``."""
    kind = _format(file, placement.source)
    if kind == "zip":
        return torch_zip.read(file, placement, encoding, layers, shared)
    if kind == "legacy":
        return torch_legacy.read(file, placement, encoding, layers)
    return tensors.read(file, placement)


@contextlib.contextmanager
def _reading(f: FileLike, mode: str = "rb") -> Iterator[tuple[Any, str]]:  # any object with ``read``
    """Open ``f`` as a seekable file; yield it, a ``BinaryIO`` or similar, and its name for messages."""
    if isinstance(f, (str, os.PathLike)):
        with open_regular(f, mode) as file:
            yield file, repr(os.fspath(f))
        return
    if not callable(getattr(f, "read", None)):
        raise TypeError(f"load: f must be a path or a file object with read(), not a {type(f).__name__}.")
    seekable = getattr(f, "seekable", None)
    has_methods = all(callable(getattr(f, name, None)) for name in ("seek", "tell", "readline"))
    if has_methods and not callable(seekable):
        yield _Seekable(f), _name_of(f)
    elif has_methods and seekable is not None and seekable():
        yield f, _name_of(f)
    else:
        yield io.BytesIO(f.read()), _name_of(f)


class _Seekable:
    """Adapts a file object that has ``seek`` but no ``seekable``."""

    def __init__(self, file: object) -> None:
        self._file = file

    def seekable(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:  # a method of the file
        return getattr(self._file, name)


def _name_of(f: object) -> str:
    """The name of a file object in messages."""
    name = getattr(f, "name", None)
    return repr(name) if isinstance(name, str) else f"<{type(f).__name__}>"


def _format(file: BinaryIO, source: str) -> str:
    """The format of ``file`` by its first bytes, "zip", "legacy" or "safetensors"; restores the position.

    Raises ``CheckpointError`` for other files.
    """
    start = file.tell()
    head = file.read(512)
    file.seek(start)
    if head.startswith(torch_zip.MAGIC):
        return "zip"
    if head[:1] == b"\x80" and torch_legacy.MAGIC in head[:32]:
        return "legacy"
    if tensor_arrays.begins(head):
        return "safetensors"
    if not head:
        problem = "it is empty; whatever wrote it did not finish"
    elif head.startswith(b"\x1f\x8b"):
        problem = "it is compressed with gzip; unpack it first"
    elif head[257:262] == b"ustar":
        problem = "it is in PyTorch's tar format of before 0.1.10; save it again with a newer PyTorch"
    elif head.startswith(b"\x80"):
        raise UnsafeCheckpointError(
            f"cannot load {source}: it is a bare pickle, which may run any code when read; save its tensors"
            " with torch.save or safetensors."
        )
    else:
        problem = (
            "it begins like neither a PyTorch (.pt) nor a safetensors file, so it is damaged or something "
            "else"
        )
    raise CheckpointError(f"cannot load {source}: {problem}.")
