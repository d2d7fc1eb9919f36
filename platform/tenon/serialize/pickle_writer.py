"""Write the object tree of a ``.pt`` file, opcode by opcode, like ``torch.save``.

No pickler is used, so that no code of an object's class can determine the contents of the file. The stream is
protocol 2 and has only values that PyTorch's ``weights_only=True`` reader allows: containers, numbers, and
``torch._utils._rebuild_*`` calls with references to storages.

Next: ``torch_zip.py`` puts the stream and the storages into a zip archive.
"""

from __future__ import annotations

import dataclasses
import pickle
import struct
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence

from tenon.compat.typed_storage import TypedStorage
from tenon.device import Device
from tenon.dtypes import dtype
from tenon.errors import UnsavableError
from tenon.nn.module import Module
from tenon.serialize import contents, modules
from tenon.serialize.extents import Storage
from tenon.serialize.layout import Described, StorageTable
from tenon.serialize.opcodes import Opcodes
from tenon.tensors.size import Size
from tenon.tensors.storage.untyped import UntypedStorage
from tenon.tensors.tensor import Tensor

#: Element type -> PyTorch's class of storages for it; the other types use ``UntypedStorage``.
STORAGE_CLASSES = {
    "float64": "DoubleStorage",
    "float32": "FloatStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "int64": "LongStorage",
    "int32": "IntStorage",
    "int16": "ShortStorage",
    "int8": "CharStorage",
    "uint8": "ByteStorage",
    "bool": "BoolStorage",
    "complex64": "ComplexFloatStorage",
    "complex128": "ComplexDoubleStorage",
}


class PickleWriter(Opcodes):
    """Writes one object tree; ``storages`` are those that it refers to, in the order of their keys."""

    def __init__(self, table: StorageTable, *, old: bool = False) -> None:
        super().__init__()
        self._old = old  # the format before 1.6, whose references have a sixth part
        self.storages: list[Storage] = []
        self._numbered: set[int] = set()
        self._table = table
        self._kept_alive: list[object] = []  # so that no id in the memo is reused

    def dump(self, obj: object) -> bytes:
        """The complete stream for ``obj``."""
        self._out += pickle.PROTO + b"\x02"
        self._write(obj)
        self._out += pickle.STOP
        return bytes(self._out)

    # --- values ---

    def _write(self, value: object) -> None:
        value = contents.simple(value)
        kind = type(value)
        if isinstance(value, Tensor):
            if not self._recall(id(value)):
                self._write_tensor(value)
                self._remember(id(value))
            return
        if isinstance(value, contents.STORAGES):
            self._write_storage(value)
            return
        if isinstance(value, Module):
            if not self._recall(id(value)):
                self._write_module(value)
            return
        if isinstance(value, modules.Named):
            self._global("torch.nn.functional", value.name)
            return
        if modules.is_record(value):
            if not self._recall(id(value)):
                self._write_record(value)
            return
        if kind in contents.MAPPINGS or kind in contents.SEQUENCES:
            if len(self._path) >= contents.MAX_DEPTH:
                contents.refuse_depth(tuple(self._path))
            self._write_container(value)
        elif kind in contents.SCALARS:
            self._write_scalar(value)
        else:
            contents.refuse(value, tuple(self._path))

    def _write_scalar(self, value: object) -> None:
        if value is None:
            self._out += pickle.NONE
        elif type(value) is bool:
            self._out += pickle.NEWTRUE if value else pickle.NEWFALSE
        elif type(value) is int:
            self._int(value)
        elif type(value) is float:
            self._out += pickle.BINFLOAT + struct.pack(">d", value)
        elif type(value) is str:
            self._str(value)
        elif type(value) is complex:
            self._global("__builtin__", "complex")
            self._write(value.real)
            self._write(value.imag)
            self._out += pickle.TUPLE2 + pickle.REDUCE
        elif type(value) is bytes:
            self._bytes(value)
        elif type(value) is bytearray:
            self._global("__builtin__", "bytearray")
            self._bytes(bytes(value))
            self._out += pickle.TUPLE1 + pickle.REDUCE
        elif isinstance(value, dtype):
            self._global("torch", value.name)
        elif isinstance(value, Device):
            self._device(value)

    def _write_container(self, value: object) -> None:
        if self._recall(id(value)):
            return
        self._kept_alive.append(value)
        if isinstance(value, tuple):
            if type(value) is Size:
                self._global("torch", "Size")
            self._tuple(value)
            if type(value) is Size:
                self._out += pickle.TUPLE1 + pickle.REDUCE
            if value:
                self._remember(id(value))
        elif isinstance(value, set):
            self._global("__builtin__", "set")
            self._list([contents.check_key(v, (*self._path, contents.MEMBER)) for v in value])
            self._out += pickle.TUPLE1 + pickle.REDUCE
            self._remember(id(value))
        elif isinstance(value, list):
            self._list(value)
        elif isinstance(value, Counter):
            self._global("collections", "Counter")
            self._mapping(dict(value))
            self._out += pickle.TUPLE1 + pickle.REDUCE
            self._remember(id(value))
        elif isinstance(value, dict):
            self._mapping(value)

    def _tuple(self, items: Sequence[object]) -> None:
        if len(items) > 3:
            self._out += pickle.MARK
        for index, item in enumerate(items):
            self._inside(index, item)
        self._out += (pickle.EMPTY_TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3, pickle.TUPLE)[
            min(len(items), 4)
        ]

    def _list(self, items: list[object]) -> None:
        self._out += pickle.EMPTY_LIST
        self._remember(id(items))
        self._kept_alive.append(items)
        if items:
            self._out += pickle.MARK
            for index, item in enumerate(items):
                self._inside(index, item)
            self._out += pickle.APPENDS

    def _mapping(self, mapping: Mapping[object, object]) -> None:
        """A dict, or an OrderedDict with its ``_metadata``."""
        if type(mapping) is OrderedDict:
            self._ordered_dict()
        else:
            self._out += pickle.EMPTY_DICT
        self._remember(id(mapping))
        self._kept_alive.append(mapping)
        if mapping:
            self._out += pickle.MARK
            for key, item in mapping.items():
                self._write(contents.check_key(key, (*self._path, key)))
                self._inside(key, item)
            self._out += pickle.SETITEMS
        attributes = contents.attributes_of(mapping, tuple(self._path))
        if attributes:
            self._out += pickle.EMPTY_DICT + pickle.MARK
            for name, item in attributes.items():
                self._str(name)
                self._inside(contents.METADATA, item)
            self._out += pickle.SETITEMS + pickle.BUILD

    def _write_module(self, module: Module) -> None:
        if len(self._path) >= contents.MAX_DEPTH:
            contents.refuse_depth(tuple(self._path))
        name, state = modules.state_of(module, contents.format_path(tuple(self._path)))
        self._kept_alive.append(state)
        self._global(*name)
        self._out += pickle.EMPTY_TUPLE + pickle.NEWOBJ
        self._remember(id(module))
        self._out += pickle.EMPTY_DICT + pickle.MARK
        for hooks in modules.HOOKS:  # which PyTorch's modules must have
            self._str(hooks)
            self._ordered_dict()
        for attribute, value in state.items():
            self._str(attribute)
            self._inside(contents.attribute(attribute), value)
        self._out += pickle.SETITEMS + pickle.BUILD

    def _write_record(self, record: modules.Record) -> None:
        self._kept_alive.append(record)
        self._global(*modules.RECORDS[type(record)])
        self._out += pickle.EMPTY_TUPLE + pickle.NEWOBJ
        self._remember(id(record))
        self._write([getattr(record, field.name) for field in dataclasses.fields(record)])
        self._out += pickle.BUILD

    def _inside(self, step: object, value: object) -> None:
        """Write a part of the current value, to which ``step`` of the key path leads."""
        self._path.append(step)
        self._write(value)
        self._path.pop()

    # --- tensors ---

    def _write_tensor(self, tensor: Tensor) -> None:
        described, attributes = self._table.describe(tensor), contents.attributes_of_tensor(tensor)
        if not described.is_parameter and not attributes:
            self._rebuild(described, described.requires_grad)
            return
        if not described.is_parameter:
            self._global("torch._tensor", "_rebuild_from_type_v2")
            self._out += pickle.MARK
            self._rebuilder(described)
            self._global("torch", "Tensor")
            self._arguments(described, described.requires_grad)
            self._attributes(attributes)
            self._out += pickle.TUPLE + pickle.REDUCE
            return
        # A parameter is a call on its data, for which PyTorch writes requires_grad=False.
        self._global("torch._utils", f"_rebuild_parameter{'_with_state' if attributes else ''}")
        self._out += pickle.MARK
        self._rebuild(described, False)
        self._write(described.requires_grad)
        self._ordered_dict()
        if attributes:
            self._attributes(attributes)
        self._out += pickle.TUPLE + pickle.REDUCE

    def _attributes(self, attributes: dict[str, object]) -> None:
        """The attributes of a tensor, as a dict."""
        if len(self._path) >= contents.MAX_DEPTH:
            contents.refuse_depth(tuple(self._path))
        self._out += pickle.EMPTY_DICT + pickle.MARK
        for name, value in attributes.items():
            self._str(name)
            self._inside(contents.attribute(name), value)
        self._out += pickle.SETITEMS

    def _rebuild(self, described: Described, requires_grad: bool) -> None:
        """A call that builds a tensor."""
        self._rebuilder(described)
        self._arguments(described, requires_grad)
        self._out += pickle.REDUCE

    def _rebuilder(self, described: Described) -> None:
        """The function that builds a tensor."""
        if described.storage is None:
            self._global("torch._utils", "_rebuild_meta_tensor_no_storage")
        else:
            self._global("torch._utils", f"_rebuild_tensor_v{2 if is_typed(described.storage) else 3}")

    def _arguments(self, described: Described, requires_grad: bool) -> None:
        """The arguments of ``_rebuilder``, as a tuple."""
        storage = described.storage
        if storage is None:
            self._out += pickle.MARK
            self._global("torch", described.dtype.name)
            self._tuple(described.shape)
            self._tuple(described.stride)
            self._write(requires_grad)
            self._out += pickle.TUPLE
            return
        typed = is_typed(storage)
        self._out += pickle.MARK
        self._persistent_id(storage, typed)
        self._int(described.offset)
        self._tuple(described.shape)
        self._tuple(described.stride)
        self._write(requires_grad)
        self._ordered_dict()
        if not typed:
            self._global("torch", described.dtype.name)
        self._out += pickle.TUPLE

    def _write_storage(self, value: TypedStorage | UntypedStorage) -> None:
        """A storage by itself."""
        storage = self._table.describe(value).storage
        if storage is None:
            contents.refuse(value, tuple(self._path))
        if isinstance(value, TypedStorage) and not (storage.dtype is value.dtype and is_typed(storage)):
            raise UnsavableError(
                "Cannot save multiple tensors or storages that view the same data as different types: "
                f"{contents.format_path(tuple(self._path))} is of {value.dtype}. Save a tensor instead."
            )
        self._persistent_id(storage, isinstance(value, TypedStorage))

    def _persistent_id(self, storage: Storage, typed: bool) -> None:
        """A reference to a storage, which gets a key at the first one."""
        if id(storage) not in self._numbered:
            self._numbered.add(id(storage))
            storage.key = str(len(self.storages))
            self.storages.append(storage)
        self._out += pickle.MARK
        self._str("storage")
        if typed:
            assert storage.dtype is not None
            self._global("torch", STORAGE_CLASSES[storage.dtype.name])
            count = storage.nbytes // storage.dtype.itemsize
        else:
            self._global(*(("torch", "ByteStorage") if self._old else ("torch.storage", "UntypedStorage")))
            count = storage.nbytes
        self._str(storage.key)
        self._str(storage.location)
        self._int(count)
        self._out += (pickle.NONE if self._old else b"") + pickle.TUPLE + pickle.BINPERSID


def is_typed(storage: Storage) -> bool:
    """Whether PyTorch has a class of storages for its dtype."""
    return storage.dtype is not None and storage.dtype.name in STORAGE_CLASSES
