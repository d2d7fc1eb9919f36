"""The opcodes of pickle in which object trees are written: numbers, strings, globals, and the memo.

Next: ``pickle_writer.py`` writes containers and tensors with them.
"""

from __future__ import annotations

import pickle
import struct

from tenon.device import Device
from tenon.errors import UnsavableError
from tenon.serialize import contents

#: The longest bytes of which equal ones share their text in the file.
_SHARED = 256


class Opcodes:
    """A stream of opcodes; ``_path`` is the key path of the value being written, for messages."""

    def __init__(self) -> None:
        self._out = bytearray()
        self._memo: dict[object, int] = {}
        self._next = 0
        self._path: list[object] = []

    def _int(self, value: int) -> None:
        contents.check_integer(value, tuple(self._path))
        if 0 <= value <= 0xFF:
            self._out += pickle.BININT1 + struct.pack("<B", value)
        elif 0 <= value <= 0xFFFF:
            self._out += pickle.BININT2 + struct.pack("<H", value)
        elif -0x80000000 <= value <= 0x7FFFFFFF:
            self._out += pickle.BININT + struct.pack("<i", value)
        else:
            encoded = pickle.encode_long(value)
            self._out += pickle.LONG1 + struct.pack("<B", len(encoded)) + encoded

    def _str(self, value: str, *, again: bool = False) -> None:
        """Write a string, or a reference to an equal one unless it is to be written ``again``."""
        if not again and self._recall(("str", value)):
            return
        encoded = value.encode("utf-8", "surrogatepass")
        if len(encoded) > 0xFFFFFFFF:
            raise UnsavableError(
                f"cannot save {contents.format_path(tuple(self._path))}: a string of 4 GB or more."
            )
        self._out += pickle.BINUNICODE + struct.pack("<I", len(encoded)) + encoded
        self._remember(("str", value))

    def _bytes(self, value: bytes) -> None:
        # Protocol 2 has no opcode for bytes; Python itself writes them like this there.
        self._global("_codecs", "encode")
        # Readers copy the text for each value, and limit what a small file may have them copy.
        self._str(value.decode("latin1"), again=len(value) > _SHARED)
        self._str("latin1")
        self._out += pickle.TUPLE2 + pickle.REDUCE

    def _device(self, device: Device) -> None:
        self._global("torch", "device")
        self._str(device.type)
        if device.index is None:
            self._out += pickle.TUPLE1
        else:
            self._int(device.index)
            self._out += pickle.TUPLE2
        self._out += pickle.REDUCE

    def _ordered_dict(self) -> None:
        self._global("collections", "OrderedDict")
        self._out += pickle.EMPTY_TUPLE + pickle.REDUCE

    def _global(self, module: str, name: str) -> None:
        key = ("global", module, name)
        if not self._recall(key):
            self._out += pickle.GLOBAL + f"{module}\n{name}\n".encode()
            self._remember(key)

    def _remember(self, key: object) -> None:
        """Store the value just written in the memo, under ``key``."""
        number = self._next
        self._memo[key] = number
        self._next += 1
        self._out += (
            pickle.BINPUT + bytes([number])
            if number < 256
            else pickle.LONG_BINPUT + struct.pack("<I", number)
        )

    def _recall(self, key: object) -> bool:
        """Write a reference to the value stored under ``key``; False, without effect, if there is none."""
        number = self._memo.get(key)
        if number is None:
            return False
        self._out += (
            pickle.BINGET + bytes([number])
            if number < 256
            else pickle.LONG_BINGET + struct.pack("<I", number)
        )
        return True
