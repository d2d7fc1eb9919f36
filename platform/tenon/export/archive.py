"""Zip archives of JSON documents and tensors, without pickle: files of exported programs and of traces.

Entries are stored, not compressed, so that a small file cannot demand large memory. Files of any content,
which the caller adds, are under ``extra/``.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from typing import BinaryIO

import numpy as np

from tenon import serialize
from tenon.engine.types import Array
from tenon.errors import BundleError, CheckpointError, TenonError
from tenon.export import schema
from tenon.export.json_types import Json
from tenon.serialize.atomic import replacing
from tenon.serialize.limits import Allowance, cut
from tenon.serialize.named import NamedBytes
from tenon.serialize.regular_files import open_regular
from tenon.serialize.tensors import Packed
from tenon.serialize.zip_checks import BROKEN, opened
from tenon.tensors.creation.create import wrap
from tenon.tensors.tensor import Tensor

WEIGHTS = "weights.safetensors"
#: The largest tensors file, and the largest extra file, that are read from an archive.
MAX_BYTES = 1 << 36


def write(
    f: str | os.PathLike[str] | BinaryIO,
    documents: Mapping[str, Json],
    arrays: Mapping[str, Array],
    extra_files: Mapping[str, str | bytes] | None = None,
) -> None:
    """Write an archive: ``documents`` by file name, ``arrays`` by name. A path is replaced atomically."""
    weights, content = io.BytesIO(), io.BytesIO()
    Packed(tensors_of(arrays)).write(weights, WEIGHTS)
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:
        for name, document in documents.items():
            archive.writestr(_entry(name), json.dumps(document, allow_nan=False))
        archive.writestr(_entry(WEIGHTS), weights.getvalue())
        for name, extra in (extra_files or {}).items():
            archive.writestr(_entry(f"extra/{name}"), extra)
    if isinstance(f, str | os.PathLike):
        with replacing(f) as file:
            file.write(content.getvalue())
    else:
        f.write(content.getvalue())


def tensors_of(arrays: Mapping[str, Array]) -> dict[str, Tensor]:
    """Return copies of ``arrays`` on the CPU as tensors."""
    return {name: wrap(np.array(array, order="C"), device="cpu") for name, array in arrays.items()}


def _entry(name: str) -> zipfile.ZipInfo:
    """Return an entry of fixed date, so that equal contents give equal files."""
    return zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))


@contextlib.contextmanager
def reading(f: str | os.PathLike[str] | BinaryIO, source: str, writer: str) -> Iterator[zipfile.ZipFile]:
    """Open an archive for reading; BundleError names ``source`` and ``writer`` if it is damaged."""
    try:
        with open_regular(f) if isinstance(f, str | os.PathLike) else contextlib.nullcontext(f) as file:
            archive = opened(file, Allowance.of(file))
            for entry in archive.infolist():
                archive.open(entry).close()  # raises if its own name is another than that in the directory
            yield archive
    except TenonError as error:
        if isinstance(error, CheckpointError):
            raise BundleError(f"{source} is not a file of {writer}, or is damaged: {cut(error)}.") from error
        raise
    except BROKEN as error:
        raise BundleError(f"{source} is not a file of {writer}, or is damaged: {cut(error)}.") from error


def member(archive: zipfile.ZipFile, name: str, limit: int = MAX_BYTES) -> bytes:
    """Return an entry; KeyError if there is none, BundleError if compressed or larger than ``limit``."""
    info = archive.getinfo(name)
    if info.compress_type != zipfile.ZIP_STORED or info.file_size > limit:
        raise BundleError(f"{name} is compressed, or has more than {limit:,} bytes.")
    return archive.read(name)


def document(archive: zipfile.ZipFile, name: str, source: str) -> dict[str, Json]:
    """Return the JSON object in an entry; ``source`` names the archive in errors."""
    return schema.parse(member(archive, name, schema.MAX_FILE), f"{source}: {name}")


def tensors(archive: zipfile.ZipFile, source: str) -> dict[str, Tensor]:
    """Return the tensors of an archive by name; ``source`` names the archive in errors."""
    return read_tensors(NamedBytes(member(archive, WEIGHTS), f"{source}: {WEIGHTS}"))


def read_tensors(f: str | os.PathLike[str] | NamedBytes) -> dict[str, Tensor]:
    """Return the tensors in a safetensors file; BundleError if it is damaged or holds anything else."""
    try:
        loaded = serialize.load(f)
    except CheckpointError as error:
        raise BundleError(str(error)) from error
    if not isinstance(loaded, dict) or not all(isinstance(t, Tensor) for t in loaded.values()):
        name = f.name if isinstance(f, NamedBytes) else os.fspath(f)
        raise BundleError(f"{name} does not hold tensors by name.")
    return loaded
