"""Read the object tree of a ``.pt`` file without executing code that it names.

This is not ``pickle``: it is a small interpreter of pickle's opcodes that builds lists, tuples, sets, dicts,
numbers and strings. It calls only the ``Constructor``s in a table of allowed globals, whose keys are
the names that PyTorch writes, and creates the layers in that table. No module is imported and no attribute is
looked up by a name from the file; ``BUILD`` sets only the ``_metadata`` of an ``OrderedDict``, and the
attributes that ``modules.restore`` allows for a layer.

Values read from a file are annotated as ``object``: their types are checked before use.

Next: ``torch_globals.py``, the table of PyTorch's globals.
"""

from __future__ import annotations

import pickle
import struct
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeAlias

from tenon.errors import CheckpointError, TenonError, UnsafeCheckpointError
from tenon.nn.module import Module
from tenon.serialize import modules
from tenon.serialize.limits import Allowance, check_key, cut, short
from tenon.serialize.lone_storages import Converter

_MARK = object()

#: The function of an opcode.
Step: TypeAlias = Callable[["PickleReader"], None]


@dataclass(frozen=True, slots=True)
class Constructor:
    """The function that takes the place of a global of PyTorch: builds a value from its arguments.

    ``build`` checks the types of its arguments, which come from a file.
    """

    name: str
    build: Callable[..., object]

    def __call__(self, *args: object) -> object:
        """Return ``build(*args)``."""
        return self.build(*args)


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A harmless global for something that tenon does not have; its use raises ``CheckpointError``."""

    name: str
    reason: str


class PickleReader:
    """Reads one pickle from the current position of ``file``, and leaves the position after it.

    ``allowed`` maps the full names of globals to a ``Constructor``, ``Unsupported`` or a value;
    ``load_persistent`` resolves references to storages; ``source`` names the file in messages; strings of
    Python 2 are decoded with ``encoding``. What is copied is subtracted from ``allowance``.
    """

    def __init__(
        self,
        file: BinaryIO,
        allowed: Mapping[str, object],
        load_persistent: Callable[[object], object],
        source: str,
        encoding: str = "utf-8",
        allowance: Allowance | None = None,
    ) -> None:
        self.source = source
        self._file = file
        self._allowed = allowed
        self._load_persistent = load_persistent
        self._encoding = encoding
        stream = Allowance.of(file)
        self._size = stream.size
        self.allowance = allowance or stream
        self.plain = Converter()
        self.stack: list[object] = []
        self.memo: dict[int, object] = {}

    def load(self) -> object:
        """Return the object; raise ``CheckpointError``, or its ``UnsafeCheckpointError``, if it cannot be."""
        try:
            while True:
                code = self.read(1)
                if code == pickle.STOP:
                    return self.plain(self.pop())
                step = STEPS.get(code)
                if step is None:
                    raise CheckpointError(f"opcode {code!r} does not occur in checkpoints")
                step(self)
        except UnsafeCheckpointError:
            raise
        except TenonError as error:
            if str(error).startswith("cannot load"):
                raise
            raise CheckpointError(f"cannot load {self.source}: {cut(error)}{self._near()}.") from error
        except (
            ArithmeticError,
            AttributeError,
            EOFError,
            LookupError,
            RecursionError,
            TypeError,
            ValueError,
        ) as error:
            problem = f"{type(error).__name__}: {cut(error)}"
            raise CheckpointError(
                f"cannot load {self.source}: its object tree is damaged ({problem}){self._near()}. "
                "Nothing was loaded; take another copy of the file."
            ) from error
        except (struct.error, MemoryError) as error:
            raise CheckpointError(
                f"cannot load {self.source}: its object tree ends too early ({cut(error)})."
            ) from error

    # --- input ---

    def read(self, count: int) -> bytes:
        """Read exactly ``count`` bytes."""
        if count > self._size:  # a file object might allocate the memory first
            raise EOFError(f"{count} bytes needed, and there are {self._size}")
        data = self._file.read(count)
        if len(data) != count:
            raise EOFError(f"{count} bytes needed, {len(data)} left")
        return data

    def readline(self) -> str:
        """Read text up to the next newline, which is dropped."""
        line = self._file.readline()
        if not line.endswith(b"\n"):
            raise EOFError("a line without an end")
        return line[:-1].decode("utf-8")

    def number(self, layout: str) -> int:
        """Read an integer in the format ``layout`` of ``struct``."""
        value: int = struct.unpack(layout, self.read(struct.calcsize(layout)))[0]
        return value

    def text(self, count: int) -> str:
        """Read ``count`` bytes of UTF-8."""
        return self.read(count).decode("utf-8", "surrogatepass")

    def old_text(self, count: int) -> str | bytes:
        """Read a string of Python 2: text in the reader's encoding, or bytes if that is ``"bytes"``."""
        data = self.read(count)
        return data if self._encoding == "bytes" else data.decode(self._encoding)

    # --- stack ---

    def push(self, value: object) -> None:
        """Push ``value`` onto the stack."""
        self.stack.append(value)

    def pop(self) -> object:
        """Remove and return the top value."""
        value = self.stack.pop()
        if value is _MARK:
            raise ValueError("a mark where a value belongs")
        return value

    def top(self) -> object:
        """Return the top value without removing it."""
        if self.stack[-1] is _MARK:
            raise ValueError("a mark where a value belongs")
        return self.stack[-1]

    def pop_to_mark(self) -> list[object]:
        """Remove the values above the last mark, and the mark; return the values."""
        for index in range(len(self.stack) - 1, -1, -1):
            if self.stack[index] is _MARK:
                items = self.stack[index + 1 :]
                del self.stack[index:]
                return items
        raise IndexError("no mark on the stack")

    # --- globals, calls and attributes ---

    def find(self, module: str, name: str) -> None:
        """GLOBAL: push the allowed value for ``module.name``; nothing is imported."""
        full = f"{module}.{name}"
        value = self._allowed.get(full)
        if value is None:
            raise UnsafeCheckpointError(
                f"Weights only load failed: refused to load {self.source}, which refers to the global "
                f"{short(full)}. tenon never imports or runs what a checkpoint names; it builds tensors, "
                "plain containers and numbers only"
                + (
                    ", and with weights_only=False layers of tenon.nn"
                    if full.startswith(("torch.nn.", "tenon.fx."))
                    else ""
                )
                + ". If you trust the file, load it where it was made and save"
                " `state_dict()`s instead of "
                "whole objects."
            )
        if isinstance(value, Unsupported):
            raise CheckpointError(f"it holds {value.name}, and {value.reason}")
        self.push(value)

    def call(self) -> None:
        """REDUCE and NEWOBJ: call a ``Constructor`` or create a layer; anything else is refused."""
        args, function = self.pop(), self.pop()
        if isinstance(function, type) and issubclass(function, Module) and type(args) is tuple and not args:
            self.push(modules.new(function))
            return
        if isinstance(function, type) and function in modules.RECORDS and args == ():
            self.push(object.__new__(function))
            return
        if not isinstance(function, Constructor):
            raise UnsafeCheckpointError(
                f"refused to load {self.source}: it calls a {type(function).__name__}, and only the "
                "constructors of "
                "tensors and plain containers can be called."
            )
        if type(args) is not tuple:
            raise TypeError(f"{function.name} is called with a {type(args).__name__} instead of a tuple")
        self.push(function(*args))

    def persistent(self) -> None:
        """BINPERSID: push the storage that a reference means."""
        self.push(self._load_persistent(self.pop()))

    def build(self) -> None:
        """BUILD: set attributes of a module, of a record, or of the OrderedDict of a state dict."""
        state, target = self.pop(), self.top()
        if isinstance(target, Module):
            self.allowance.take_copy(state)
            modules.restore(target, state, self.source)
            return
        if modules.is_record(target):
            modules.restore_record(target, state)
            return
        if type(target) is not OrderedDict or type(state) is not dict:
            raise UnsafeCheckpointError(
                f"refused to load {self.source}: it sets the state of a {type(target).__name__}, which "
                "could run code."
            )
        unknown = [
            name
            for name in state
            if type(name) is not str or name.startswith("__") or hasattr(OrderedDict, name)
        ]
        if unknown:
            raise UnsafeCheckpointError(
                f"refused to load {self.source}: it sets {short(unknown[0])} of an OrderedDict, which could "
                "replace a method."
            )
        self.allowance.take_copy(state)
        vars(target).update(state)

    def set_items(self, items: list[object]) -> None:
        """SETITEM and SETITEMS: add keys and values, in turn, to a dict."""
        target = self.top()
        if not (type(target) is dict or type(target) is OrderedDict or type(target) is Counter):
            raise UnsafeCheckpointError(
                f"refused to load {self.source}: it sets items of a {type(target).__name__}, which could "
                "run code."
            )
        mapping: dict[Any, Any] = target  # of any keys and values; a Counter's are not checked to be numbers
        for key, value in zip(items[::2], items[1::2], strict=True):
            check_key(key, self.allowance)
            mapping[key] = self.plain(value)

    def append(self, items: list[object]) -> None:
        """APPEND and APPENDS: extend a list."""
        target = self.top()
        if type(target) is not list:
            raise UnsafeCheckpointError(
                f"refused to load {self.source}: it appends to a {type(target).__name__}, which could run "
                "code."
            )
        target.extend(map(self.plain, items))

    def add(self, items: list[object]) -> None:
        """ADDITEMS: add to a set."""
        target = self.top()
        if type(target) is not set:
            raise UnsafeCheckpointError(
                f"refused to load {self.source}: it adds to a {type(target).__name__}, which could run code."
            )
        for item in items:
            check_key(item, self.allowance)
            target.add(item)

    def skip(self, value: object) -> None:
        """Ignore ``value``, which has been read or popped."""

    def remember(self, number: int) -> None:
        """Store the top value in the memo under ``number``."""
        self.memo[number] = self.top()

    def _near(self) -> str:
        """The last text on the stack, maybe a dict key, as a hint where the error is; empty if none."""
        names = [v for v in self.stack[-8:] if type(v) is str and v != "storage"]
        return f" (near {short(names[-1])})" if names else ""


def _frozen(reader: PickleReader) -> None:
    """FROZENSET: push the set of the items above the mark."""
    items = reader.pop_to_mark()
    for item in items:
        check_key(item, reader.allowance)
    reader.push(frozenset(items))


def _stack_global(reader: PickleReader) -> None:
    """STACK_GLOBAL: ``find`` with module and name from the stack."""
    name, module = reader.pop(), reader.pop()
    if type(name) is not str or type(module) is not str:
        raise TypeError("the name of a global is not a string")
    reader.find(module, name)


def _new_with_keywords(reader: PickleReader) -> None:
    """NEWOBJ_EX: ``call`` without keyword arguments."""
    if reader.pop() != {}:
        raise ValueError("a constructor with keywords")
    reader.call()


#: Opcode -> its function.
STEPS: dict[bytes, Step] = {
    pickle.PROTO: lambda r: _protocol(r.read(1)[0]),
    pickle.FRAME: lambda r: r.skip(r.read(8)),
    pickle.NONE: lambda r: r.push(None),
    pickle.NEWTRUE: lambda r: r.push(True),
    pickle.NEWFALSE: lambda r: r.push(False),
    pickle.BININT: lambda r: r.push(r.number("<i")),
    pickle.BININT1: lambda r: r.push(r.number("<B")),
    pickle.BININT2: lambda r: r.push(r.number("<H")),
    pickle.LONG1: lambda r: r.push(pickle.decode_long(r.read(r.number("<B")))),
    pickle.BINFLOAT: lambda r: r.push(struct.unpack(">d", r.read(8))[0]),
    pickle.BINUNICODE: lambda r: r.push(r.text(r.number("<I"))),
    pickle.SHORT_BINUNICODE: lambda r: r.push(r.text(r.number("<B"))),
    pickle.BINUNICODE8: lambda r: r.push(r.text(r.number("<Q"))),
    pickle.SHORT_BINSTRING: lambda r: r.push(r.old_text(r.number("<B"))),
    pickle.BINSTRING: lambda r: r.push(r.old_text(r.number("<I"))),
    pickle.SHORT_BINBYTES: lambda r: r.push(r.read(r.number("<B"))),
    pickle.BINBYTES: lambda r: r.push(r.read(r.number("<I"))),
    pickle.BINBYTES8: lambda r: r.push(r.read(r.number("<Q"))),
    pickle.BYTEARRAY8: lambda r: r.push(bytearray(r.read(r.number("<Q")))),
    pickle.EMPTY_TUPLE: lambda r: r.push(()),
    pickle.EMPTY_LIST: lambda r: r.push([]),
    pickle.EMPTY_DICT: lambda r: r.push({}),
    pickle.EMPTY_SET: lambda r: r.push(set()),
    pickle.MARK: lambda r: r.push(_MARK),
    pickle.TUPLE: lambda r: r.push(tuple(r.pop_to_mark())),
    pickle.TUPLE1: lambda r: r.push((r.pop(),)),
    pickle.TUPLE2: lambda r: r.push((r.pop(), r.pop())[::-1]),
    pickle.TUPLE3: lambda r: r.push((r.pop(), r.pop(), r.pop())[::-1]),
    pickle.LIST: lambda r: r.push(r.pop_to_mark()),
    pickle.FROZENSET: _frozen,
    pickle.APPEND: lambda r: r.append([r.pop()]),
    pickle.APPENDS: lambda r: r.append(r.pop_to_mark()),
    pickle.SETITEM: lambda r: r.set_items([r.pop(), r.pop()][::-1]),
    pickle.SETITEMS: lambda r: r.set_items(r.pop_to_mark()),
    pickle.ADDITEMS: lambda r: r.add(r.pop_to_mark()),
    pickle.POP: lambda r: r.skip(r.stack.pop()),
    pickle.POP_MARK: lambda r: r.skip(r.pop_to_mark()),
    pickle.DUP: lambda r: r.push(r.top()),
    pickle.BINPUT: lambda r: r.remember(r.number("<B")),
    pickle.LONG_BINPUT: lambda r: r.remember(r.number("<I")),
    pickle.MEMOIZE: lambda r: r.remember(len(r.memo)),
    pickle.BINGET: lambda r: r.push(r.memo[r.number("<B")]),
    pickle.LONG_BINGET: lambda r: r.push(r.memo[r.number("<I")]),
    pickle.GLOBAL: lambda r: r.find(r.readline(), r.readline()),
    pickle.STACK_GLOBAL: _stack_global,
    pickle.REDUCE: PickleReader.call,
    pickle.NEWOBJ: PickleReader.call,
    pickle.NEWOBJ_EX: _new_with_keywords,
    pickle.BUILD: PickleReader.build,
    pickle.BINPERSID: PickleReader.persistent,
}


def _protocol(number: int) -> None:
    """PROTO: check the version of the protocol."""
    if number > pickle.HIGHEST_PROTOCOL:
        raise CheckpointError(f"pickle protocol {number} is newer than any that is known")
