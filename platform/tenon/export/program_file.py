"""Files of exported programs: zip archives of ``graph.json`` and ``weights.safetensors``, without pickle.

Both are those of a bundle, see ``bundle.py``. ``program.json`` has the names of arguments and of buffers that
are not persistent; files beside them, of any content, are under ``extra/``.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tenon import serialize
from tenon.errors import BundleError, CheckpointError
from tenon.export import schema
from tenon.export.exported_program import ExportedProgram, Names
from tenon.serialize.atomic import replacing
from tenon.tensors.creation.create import wrap

GRAPH, WEIGHTS, PROGRAM = "graph.json", "weights.safetensors", "program.json"
#: The largest file that ``load`` reads from an archive.
_MAX_BYTES = 1 << 36


def save(
    ep: ExportedProgram,
    f: str | os.PathLike[str] | BinaryIO,
    extra_files: Mapping[str, str | bytes] | None = None,
) -> None:
    """Write a program to a file; a path is replaced atomically, and all of it or nothing."""
    document, arrays = schema.to_document(ep.whole)
    weights = io.BytesIO()
    tensors = {name: wrap(np.array(array, order="C"), device="cpu") for name, array in arrays.items()}
    with tempfile.TemporaryDirectory(prefix="tenon-export-") as folder:
        path = Path(folder) / WEIGHTS
        serialize.save(tensors, path)
        weights.write(path.read_bytes())
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(_entry(GRAPH), json.dumps(document, allow_nan=False))
        archive.writestr(_entry(WEIGHTS), weights.getvalue())
        names = {"arguments": list(ep.names.arguments), "temporary": sorted(ep.names.temporary)}
        archive.writestr(_entry(PROGRAM), json.dumps(names))
        for name, extra in (extra_files or {}).items():
            archive.writestr(_entry(f"extra/{name}"), extra)
    if isinstance(f, str | os.PathLike):
        with replacing(f) as file:
            file.write(content.getvalue())
    else:
        f.write(content.getvalue())


def _entry(name: str) -> zipfile.ZipInfo:
    """Return an entry of fixed date, so that equal programs have equal files."""
    return zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))


def load(
    f: str | os.PathLike[str] | BinaryIO,
    extra_files: dict[str, Any] | None = None,  # values of any type are replaced by text
) -> ExportedProgram:
    """Read a program; nothing in the file is executed. BundleError if it is damaged."""
    source = os.fspath(f) if isinstance(f, str | os.PathLike) else "the file"
    try:
        with zipfile.ZipFile(f) as archive:
            document = schema.parse(_read(archive, GRAPH, schema.MAX_FILE), f"{source}: {GRAPH}")
            weights = _read(archive, WEIGHTS, _MAX_BYTES)
            # Older files have none.
            named = PROGRAM in archive.namelist()
            names = _names(_read(archive, PROGRAM, schema.MAX_FILE), source) if named else Names()
            extras = {} if extra_files is None else extra_files
            for name in extras:
                extras[name] = _read(archive, f"extra/{name}", schema.MAX_FILE).decode()
    except (zipfile.BadZipFile, KeyError, NotImplementedError, EOFError) as error:
        raise BundleError(f"{source} is no program that tenon.export.save wrote: {error}.") from error
    with tempfile.TemporaryDirectory(prefix="tenon-export-") as folder:
        path = Path(folder) / WEIGHTS
        path.write_bytes(weights)
        try:
            arrays = serialize.load(path)
        except CheckpointError as error:
            raise BundleError(f"{source}: {error}") from error
    if not isinstance(arrays, dict):
        raise BundleError(f"{source}: {WEIGHTS} does not hold tensors by name.")
    return ExportedProgram(schema.from_document(document, arrays, source), names=names)


def _names(text: bytes, source: str) -> Names:
    """Return the names in ``program.json``."""
    try:
        read = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{source}: {PROGRAM} is no JSON: {error}.") from error
    keys = {"arguments", "temporary"}
    lists = [read[key] for key in keys] if isinstance(read, dict) and set(read) == keys else [None]
    if not all(isinstance(each, list) and all(type(name) is str for name in each) for each in lists):
        raise BundleError(f"{source}: {PROGRAM} does not hold lists of names.")
    return Names(tuple(read["arguments"]), frozenset(read["temporary"]))


def _read(archive: zipfile.ZipFile, name: str, limit: int) -> bytes:
    info = archive.getinfo(name)
    if info.compress_type != zipfile.ZIP_STORED or info.file_size > limit:
        raise BundleError(f"{name} is compressed, or has more than {limit:,} bytes.")
    return archive.read(name)
