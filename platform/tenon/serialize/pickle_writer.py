"""Write the object tree of a ``.pt`` file, opcode by opcode, as ``torch.save`` would.

No pickler is used, so there is no path on which an object's own code could decide what goes into the
file. The stream is protocol 2 and names only what PyTorch's ``weights_only=True`` reader allows:
containers, numbers, and ``torch._utils._rebuild_*`` calls around references to storages.

Next: ``torch_zip.py`` puts the stream and the storages into a zip archive.
"""

from __future__ import annotations

import dataclasses
import pickle
import struct
from collections import Counter, OrderedDict
from typing import Any

from tenon.dtypes import dtype
from tenon.errors import UnsavableError
from tenon.nn.module import Module
from tenon.serialize import contents, modules
from tenon.serialize.layout import Described, Storage, StorageTable
from tenon.serialize.opcodes import Opcodes
from tenon.tensors.size import Size
from tenon.tensors.storage.typed import TypedStorage
from tenon.tensors.tensor import Tensor

#: Element types whose storages have a class of their own in PyTorch; the others use ``UntypedStorage``.
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
    """Opcodes of one object tree; ``storages`` are what it refers to, in the order of their keys."""

    def __init__(self, table: StorageTable, *, old: bool = False) -> None:
        super().__init__()
        self._old = old  # the format before 1.6, whose references have a sixth part
        self.storages: list[Storage] = []
        self._numbered: set[int] = set()
        self._table = table
        self._kept: list[Any] = []

    def dump(self, obj: Any) -> bytes:
        """The whole stream for ``obj``."""
        self._out += pickle.PROTO + b"\x02"
        self._write(obj)
        self._out += pickle.STOP
        return bytes(self._out)

    # --- values ---

    def _write(self, value: Any) -> None:
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
        if kind is modules.Named:
            self._global("torch.nn.functional", value.name)
            return
        if kind in modules.RECORDS:
            if not self._recall(id(value)):
                self._write_record(value)
            return
        if kind in contents.MAPPINGS or kind in contents.SEQUENCES:
            if len(self._path) >= contents.MAX_DEPTH:
                contents.refuse_depth(tuple(self._path))
            self._write_container(value, kind)
        elif kind in contents.SCALARS:
            self._write_scalar(value, kind)
        else:
            contents.refuse(value, tuple(self._path))

    def _write_scalar(self, value: Any, kind: type) -> None:
        if value is None:
            self._out += pickle.NONE
        elif kind is bool:
            self._out += pickle.NEWTRUE if value else pickle.NEWFALSE
        elif kind is int:
            self._int(value)
        elif kind is float:
            self._out += pickle.BINFLOAT + struct.pack(">d", value)
        elif kind is str:
            self._str(value)
        elif kind is complex:
            self._global("__builtin__", "complex")
            self._write(value.real)
            self._write(value.imag)
            self._out += pickle.TUPLE2 + pickle.REDUCE
        elif kind is bytes:
            self._bytes(value)
        elif kind is bytearray:
            self._global("__builtin__", "bytearray")
            self._bytes(bytes(value))
            self._out += pickle.TUPLE1 + pickle.REDUCE
        elif kind is dtype:
            self._global("torch", value.name)
        else:
            self._device(value)

    def _write_container(self, value: Any, kind: type) -> None:
        if self._recall(id(value)):
            return
        self._kept.append(value)
        if kind is tuple or kind is Size:
            if kind is Size:
                self._global("torch", "Size")
            self._tuple(value)
            if kind is Size:
                self._out += pickle.TUPLE1 + pickle.REDUCE
            if value:
                self._remember(id(value))
        elif kind is set:
            self._global("__builtin__", "set")
            self._list([contents.check_key(v, (*self._path, contents.MEMBER)) for v in value])
            self._out += pickle.TUPLE1 + pickle.REDUCE
            self._remember(id(value))
        elif kind is list:
            self._list(value)
        elif kind is Counter:
            self._global("collections", "Counter")
            self._mapping(dict(value))
            self._out += pickle.TUPLE1 + pickle.REDUCE
            self._remember(id(value))
        else:
            self._mapping(value)

    def _tuple(self, items: tuple[Any, ...]) -> None:
        if len(items) > 3:
            self._out += pickle.MARK
        for index, item in enumerate(items):
            self._inside(index, item)
        self._out += (pickle.EMPTY_TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3, pickle.TUPLE)[
            min(len(items), 4)
        ]

    def _list(self, items: list[Any]) -> None:
        self._out += pickle.EMPTY_LIST
        self._remember(id(items))
        self._kept.append(items)
        if items:
            self._out += pickle.MARK
            for index, item in enumerate(items):
                self._inside(index, item)
            self._out += pickle.APPENDS

    def _mapping(self, mapping: dict[Any, Any]) -> None:
        if type(mapping) is OrderedDict:
            self._ordered_dict()
        else:
            self._out += pickle.EMPTY_DICT
        self._remember(id(mapping))
        self._kept.append(mapping)
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
        name, state = modules.state_of(module, contents.spell(tuple(self._path)))
        self._kept.append(state)
        self._global(*name)
        self._out += pickle.EMPTY_TUPLE + pickle.NEWOBJ
        self._remember(id(module))
        self._out += pickle.EMPTY_DICT + pickle.MARK
        for hooks in modules.HOOKS:  # PyTorch's modules look for them
            self._str(hooks)
            self._ordered_dict()
        for attribute, value in state.items():
            self._str(attribute)
            self._inside(contents.attribute(attribute), value)
        self._out += pickle.SETITEMS + pickle.BUILD

    def _write_record(self, record: Any) -> None:
        self._kept.append(record)
        self._global(*modules.RECORDS[type(record)])
        self._out += pickle.EMPTY_TUPLE + pickle.NEWOBJ
        self._remember(id(record))
        self._write([getattr(record, field.name) for field in dataclasses.fields(record)])
        self._out += pickle.BUILD

    def _inside(self, step: Any, value: Any) -> None:
        self._path.append(step)
        self._write(value)
        self._path.pop()

    # --- tensors ---

    def _write_tensor(self, tensor: Any) -> None:
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
        # A parameter is a call around its data, whose own flag PyTorch writes as False.
        self._global("torch._utils", f"_rebuild_parameter{'_with_state' if attributes else ''}")
        self._out += pickle.MARK
        self._rebuild(described, False)
        self._write(described.requires_grad)
        self._ordered_dict()
        if attributes:
            self._attributes(attributes)
        self._out += pickle.TUPLE + pickle.REDUCE

    def _attributes(self, attributes: dict[str, Any]) -> None:
        if len(self._path) >= contents.MAX_DEPTH:
            contents.refuse_depth(tuple(self._path))
        self._out += pickle.EMPTY_DICT + pickle.MARK
        for name, value in attributes.items():
            self._str(name)
            self._inside(contents.attribute(name), value)
        self._out += pickle.SETITEMS

    def _rebuild(self, described: Described, requires_grad: bool) -> None:
        self._rebuilder(described)
        self._arguments(described, requires_grad)
        self._out += pickle.REDUCE

    def _rebuilder(self, described: Described) -> None:
        """The function that makes a tensor again."""
        if described.storage is None:
            self._global("torch._utils", "_rebuild_meta_tensor_no_storage")
        else:
            self._global("torch._utils", f"_rebuild_tensor_v{2 if is_typed(described.storage) else 3}")

    def _arguments(self, described: Described, requires_grad: bool) -> None:
        """Its arguments, as a tuple."""
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

    def _write_storage(self, given: Any) -> None:
        storage = self._table.describe(given).storage
        if storage is None:
            contents.refuse(given, tuple(self._path))
        typed = isinstance(given, TypedStorage)
        if typed and not (storage.dtype is given.dtype and is_typed(storage)):
            raise UnsavableError(
                "Cannot save multiple tensors or storages that view the same data as different types: "
                f"{contents.spell(tuple(self._path))} is of {given.dtype}. Save a tensor instead."
            )
        self._persistent_id(storage, typed)

    def _persistent_id(self, storage: Storage, typed: bool) -> None:
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
