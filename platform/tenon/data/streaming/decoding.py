"""Decode the fields of a sample by their names, as WebDataset's default decoders do. Nothing is unpickled.

A field is decoded by its last ending: ``seg.png`` is an image. Formats that are pickles (``pkl``, ``pickle``,
``pyd``) and arrays of objects are refused, and ``pth`` is read by ``tenon.load``, which builds tensors and
containers only.
"""

from __future__ import annotations

import io
import json
import tokenize
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from tenon.data.readers.arrays import array_in
from tenon.data.readers.images import image_in, to_tensor
from tenon.errors import DataError
from tenon.serialize import load
from tenon.serialize.limits import Allowance, cut
from tenon.serialize.zip_checks import BROKEN, opened

#: What makes a value from the bytes of a field.
Decoder: TypeAlias = Callable[[bytes], Any]
#: ``decode=``: decoders by field or ending, None for bytes; or one function of ``(field, bytes)`` for all
#: fields.
Decode: TypeAlias = Mapping[str, Decoder | None] | Callable[[str, bytes], Any]


def _integer(data: bytes) -> int:
    return int(data[:100])


def _json(data: bytes) -> object:
    try:
        return json.loads(data)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _npy(data: bytes) -> np.ndarray:
    return array_in(data, "it").copy()


def _npz(data: bytes) -> dict[str, np.ndarray]:
    file = io.BytesIO(data)
    with opened(file, Allowance(len(data))) as archive:
        return {
            entry.filename.removesuffix(".npy"): array_in(archive.read(entry), entry.filename).copy()
            for entry in archive.infolist()
        }


def _tensors(data: bytes) -> object:
    return load(io.BytesIO(data))


def _image(data: bytes) -> object:
    return to_tensor(image_in(io.BytesIO(data), len(data)))


def _text(data: bytes) -> str:
    return data.decode()


def _pickle(data: bytes) -> object:
    raise DataError(
        "it is a pickle, which can run any code. Write .npy, .json or .safetensors instead, or, where you"
        " trust who wrote it, pass decode={...} with a function of its bytes"
    )


DECODERS: dict[str, Decoder] = {
    **dict.fromkeys(("txt", "text", "transcript"), _text),
    **dict.fromkeys(("cls", "cls2", "class", "count", "index", "inx", "id"), _integer),
    **dict.fromkeys(("json", "jsn"), _json),
    **dict.fromkeys(("jpg", "jpeg", "png", "ppm", "pgm", "bmp", "webp", "tif", "tiff"), _image),
    **dict.fromkeys(("pth", "pt", "safetensors"), _tensors),
    **dict.fromkeys(("pkl", "pickle", "pyd"), _pickle),
    "npy": _npy,
    "npz": _npz,
}


def decoded(field: str, data: bytes, decode: Decode | None) -> Any:  # of the field's own type
    """The value of a field; DataError, with the reason, if the default decoder cannot read it."""
    if callable(decode):
        return decode(field, data)
    ending = field.rpartition(".")[2]
    for name in (field, ending):
        if decode is not None and name in decode:
            own = decode[name]
            return data if own is None else own(data)
    decoder = DECODERS.get(ending)
    if decoder is None:
        return data
    try:
        return decoder(data)
    except MemoryError:
        raise
    except (*BROKEN, DataError, SyntaxError, tokenize.TokenError) as error:
        raise DataError(f"{field!r} cannot be decoded: {cut(error).rstrip('.')}") from error
