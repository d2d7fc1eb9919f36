"""``ShardWriter``: samples into shards of bounded size, each complete under its name or not there."""

from __future__ import annotations

import contextlib
import io
import json
import os
import tarfile
from collections.abc import Mapping
from types import TracebackType
from typing import Any, BinaryIO, ClassVar, Protocol

import numpy as np

from tenon.data.streaming.indexing import write_index
from tenon.data.streaming.locations import index_beside
from tenon.data.streaming.tar_headers import BLOCK
from tenon.errors import DataError
from tenon.serialize import save, tensors
from tenon.serialize.atomic import replacing
from tenon.serialize.layout import packed
from tenon.tensors.creation import create
from tenon.tensors.tensor import Tensor

#: Bytes at the end of an archive.
_END = 2 * BLOCK
#: Bytes beside the rows of a safetensors shard: the most that its header takes, and each tensor in it.
_HEADER, _ENTRY = 1 << 12, 1 << 10


class ShardWriter:
    """Write samples to the shards ``pattern % 0``, ``pattern % 1``, ..., as WebDataset's class of this name
    does.

    ``pattern`` is a path with one number, as ``"data/train-%06d.tar"``; its ending chooses the format. A
    sample for ``.tar`` has ``__key__`` and fields: bytes and text are written as they are, numbers as text,
    arrays and tensors as ``npy``, whatever JSON can express as ``json``, dicts of tensors as ``safetensors``.
    A sample for ``.safetensors`` is a dict of arrays, tensors and numbers, with the same names, shapes and
    dtypes in all samples.

    A shard has at most ``maxcount`` samples and ``maxsize`` bytes. It is written beside its name and renamed
    when it is complete; an index with checksums lies beside it. A shard that exists is never replaced.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with ShardWriter(folder + "/train-%03d.tar", maxcount=2) as shards:
    ...         for i in range(3):
    ...             shards.write({"__key__": f"{i:04}", "txt": "text", "cls": i})
    ...     [path[-13:] for path in shards.paths]
    ['train-000.tar', 'train-001.tar']
    """

    def __init__(
        self, pattern: str, maxcount: int = 100_000, maxsize: int = 3_000_000_000, start_shard: int = 0
    ) -> None:
        self.pattern, self.maxcount, self.maxsize = os.fspath(pattern), int(maxcount), int(maxsize)
        try:
            if self.pattern % 0 == self.pattern % 1:
                raise TypeError("it has no number")
        except (TypeError, ValueError) as error:
            raise DataError(
                f"ShardWriter: pattern {self.pattern!r} needs one number, as 'train-%06d.tar': {error}."
            ) from error
        if "://" in self.pattern:
            raise DataError(f"ShardWriter: {self.pattern!r} is a URL. Write to a folder, and copy that.")
        if not self.pattern.endswith((".tar", ".safetensors")):
            raise DataError(f"ShardWriter: {self.pattern!r} ends in neither .tar nor .safetensors.")
        if self.maxcount < 1 or self.maxsize < 1:
            raise DataError(f"ShardWriter: maxcount={maxcount} and maxsize={maxsize} have to be positive.")
        #: The shards that are complete.
        self.paths: list[str] = []
        self._number = start_shard
        self._shard: _Shard | None = None

    def write(self, sample: Mapping[str, object]) -> None:
        """Add a sample; DataError, without a change, if it cannot be written."""
        kind: type[_Shard] = _TarShard if self.pattern.endswith(".tar") else _RowsShard
        entry, size = kind.prepared(sample)
        if size + kind.fixed > self.maxsize:
            raise DataError(
                f"sample {sample.get('__key__', '')!r} takes {size + kind.fixed:,} bytes, and a shard has at"
                f" most {self.maxsize:,}. Raise maxsize."
            )
        shard = self._shard
        if shard is not None and (shard.count >= self.maxcount or shard.size + size > self.maxsize):
            self._finish()
        if self._shard is None:
            path = self.pattern % self._number
            for each in (path, index_beside(path)):
                if os.path.lexists(each):
                    raise DataError(
                        f"{each} exists. Delete the shards of before, or choose another pattern or"
                        " start_shard."
                    )
            self._shard = kind(path)
        self._shard.add(entry)
        self._shard.count += 1
        self._shard.size += size

    def close(self) -> None:
        """Complete the last shard."""
        self._finish()

    def _finish(self) -> None:
        shard, self._shard = self._shard, None
        if shard is None:
            return
        shard.finish()
        write_index(shard.path)
        self.paths.append(shard.path)
        self._number += 1

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        elif self._shard is not None:  # the shard that was begun is not complete: it is not kept
            self._shard.abandon(error)
            self._shard = None


class _Shard(Protocol):
    """A shard that is being written: ``size`` bytes so far, of them ``fixed`` beside the samples."""

    fixed: ClassVar[int]
    path: str
    count: int
    size: int

    def __init__(self, path: str) -> None: ...

    @staticmethod
    def prepared(sample: Mapping[str, object]) -> tuple[Any, int]:  # each class has entries of its own
        """A sample as what ``add`` takes, and its length in the file."""

    def add(self, entry: Any) -> None:  # likewise
        """Add a sample."""

    def finish(self) -> None:
        """Complete the file."""

    def abandon(self, error: BaseException) -> None:
        """Leave no file."""


class _TarShard:
    """A tar file that grows with every sample."""

    fixed: ClassVar[int] = _END

    def __init__(self, path: str) -> None:
        self.path, self.count, self.size = path, 0, _END
        self._keys: set[str] = set()
        self._exit = contextlib.ExitStack()
        self._file: BinaryIO = self._exit.enter_context(replacing(path))

    @staticmethod
    def prepared(sample: Mapping[str, object]) -> tuple[tuple[str, list[bytes]], int]:
        """The key and the members of a sample as bytes, and their length."""
        key = sample.get("__key__")
        if not isinstance(key, str) or not key or "." in key.rpartition("/")[2] or key.endswith("/"):
            raise DataError(
                f"a sample has the key {key!r}. Give it a string as __key__, without a dot after the last"
                " slash, at which the key would end."
            )
        parts: list[bytes] = []
        for field, value in sample.items():
            if field == "__key__":
                continue
            if not field or "/" in field or field != field.lower() or field.startswith("."):
                raise DataError(
                    f"sample {key!r} has the field {field!r}. Fields are in lower case, as 'jpg' or"
                    " 'seg.png'."
                )
            data = _encoded(key, field, value)
            info = tarfile.TarInfo(f"{key}.{field}")
            info.size, info.mode = len(data), 0o644
            parts += [info.tobuf(tarfile.PAX_FORMAT), data, bytes(-len(data) % BLOCK)]
        if not parts:
            raise DataError(f"sample {key!r} has no fields.")
        return (key, parts), sum(map(len, parts))

    def add(self, entry: tuple[str, list[bytes]]) -> None:
        """Write a sample."""
        key, parts = entry
        if key in self._keys:
            raise DataError(f"two samples of {self.path} have the key {key!r}. Give each a key of its own.")
        self._keys.add(key)
        self._file.writelines(parts)

    def finish(self) -> None:
        """Write the end, and rename the file."""
        self._file.write(bytes(_END))
        self._exit.close()

    def abandon(self, error: BaseException) -> None:
        """Delete the file."""
        self._exit.__exit__(type(error), error, error.__traceback__)


class _RowsShard:
    """A safetensors file, whose rows are kept in memory until it is written."""

    fixed: ClassVar[int] = _HEADER

    def __init__(self, path: str) -> None:
        self.path, self.count, self.size = path, 0, _HEADER
        self._rows: list[dict[str, np.ndarray]] = []

    @staticmethod
    def prepared(sample: Mapping[str, object]) -> tuple[dict[str, np.ndarray], int]:
        """The arrays of a sample, and their length."""
        row = {name: _array(name, value) for name, value in sample.items() if name != "__key__"}
        if not row:
            raise DataError("a sample has no fields.")
        return row, sum(each.nbytes for each in row.values())

    def add(self, entry: dict[str, np.ndarray]) -> None:
        """Keep a row; DataError if it is unlike the first."""
        first = self._rows[0] if self._rows else entry
        kinds = [
            {name: (list(each.shape), str(each.dtype)) for name, each in row.items()}
            for row in (first, entry)
        ]
        if kinds[0] != kinds[1]:
            raise DataError(
                f"sample {self.count} of {self.path} has {kinds[1]}, and the first has {kinds[0]}. Rows of a"
                " safetensors shard are alike; write others to .tar."
            )
        if not self._rows:
            self.size += sum(_ENTRY + 8 * len(name) for name in entry)
        self._rows.append(entry)

    def finish(self) -> None:
        """Write the file."""
        stacked = {name: np.stack([row[name] for row in self._rows]) for name in self._rows[0]}
        save({name: create.from_numpy(array) for name, array in stacked.items()}, self.path)

    def abandon(self, error: BaseException) -> None:
        """There is no file yet."""
        self._rows.clear()


def _array(name: str, value: object) -> np.ndarray:
    array = packed(value.detach()) if isinstance(value, Tensor) else np.array(value)
    if array.dtype.kind not in "biufcV" or array.dtype == np.complex128:
        raise DataError(
            f"field {name!r} is a {type(value).__name__}. A safetensors shard has numbers, and no complex128."
        )
    return array


def _encoded(key: str, field: str, value: object) -> bytes:
    """The bytes of a field of a tar shard."""
    ending = field.rpartition(".")[2]
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if ending == "npy" and isinstance(value, Tensor | np.ndarray | np.generic):
        stream = io.BytesIO()
        np.save(stream, _array(field, value), allow_pickle=False)
        return stream.getvalue()
    if ending in ("json", "jsn"):
        try:
            return json.dumps(value).encode()
        except (TypeError, ValueError) as error:
            raise DataError(f"sample {key!r}: field {field!r} is not JSON: {error}.") from error
    if ending in ("safetensors", "pth", "pt"):
        stream = io.BytesIO()
        if ending == "safetensors":
            tensors.Packed(value).write(stream, "")
        else:
            save(value, stream)
        return stream.getvalue()
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, int | np.integer):
        return str(int(value)).encode()
    raise DataError(
        f"sample {key!r}: field {field!r} is a {type(value).__name__}. Pass bytes, or name it .npy (arrays),"
        " .json or .txt."
    )
