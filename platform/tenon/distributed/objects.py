"""Plain Python values between ranks, as JSON: what arrives is data and can never be code.

torch pickles here, so that any rank can run anything on any other. None, bool, int, float, str, bytes,
list, tuple, dict, and NumPy numbers and arrays go through unchanged; everything else is refused by name.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np

from tenon.distributed.reduction import BFLOAT16, check_transferable
from tenon.errors import CommunicatorError

DEEPEST = 100


def encode(value: Any) -> bytes:
    """``value`` as bytes; raises ``CommunicatorError`` naming the part that cannot be sent.

    >>> decode(encode({"best": (0.5, None), 3: [b"raw"]}))
    {'best': (0.5, None), 3: [b'raw']}
    """
    return json.dumps(_pack(value, "object", 0), separators=(",", ":")).encode()


def decode(payload: bytes) -> Any:
    """The value that ``encode`` was given."""
    return _unpack(json.loads(payload))


def _pack(value: Any, path: str, depth: int) -> Any:
    """JSON for ``value``: scalars as they are, everything else as ``[tag, content]``."""
    if depth > DEEPEST:
        raise CommunicatorError(f"{path} is nested more than {DEEPEST} deep. Send it in parts.")
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) in (list, tuple):
        items = [_pack(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
        return ["list" if type(value) is list else "tuple", items]
    if type(value) is dict:
        pairs = []
        for key, item in value.items():
            if type(key) not in (str, int, bool, float, tuple, type(None)):
                raise CommunicatorError(f"{path} has a key of type {type(key).__name__}. {_ADVICE}")
            pairs.append([_pack(key, f"{path} key", depth + 1), _pack(item, f"{path}[{key!r}]", depth + 1)])
        return ["dict", pairs]
    if type(value) is bytes:
        return ["bytes", base64.b64encode(value).decode("ascii")]
    if isinstance(value, np.ndarray | np.generic):
        return _pack_array(value)
    raise CommunicatorError(f"{path} is a {type(value).__module__}.{type(value).__qualname__}. {_ADVICE}")


_ADVICE = (
    "Ranks exchange only None, bool, int, float, str, bytes, list, tuple, dict and NumPy values, never "
    "pickles. Send its fields as a dict, or tensors with broadcast and all_gather."
)


def _pack_array(value: Any) -> Any:
    array = np.asarray(value)
    check_transferable(array.dtype)
    array = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(array.shape)
    name = "bfloat16" if array.dtype == BFLOAT16 else array.dtype.str
    tag = "array" if isinstance(value, np.ndarray) else "number"
    return [tag, [name, list(array.shape), base64.b64encode(array.tobytes()).decode("ascii")]]


def _unpack(packed: Any) -> Any:
    if not isinstance(packed, list):
        return packed
    tag, content = packed
    if tag == "list":
        return [_unpack(item) for item in content]
    if tag == "tuple":
        return tuple(_unpack(item) for item in content)
    if tag == "dict":
        return {_unpack(key): _unpack(item) for key, item in content}
    if tag == "bytes":
        return base64.b64decode(content)
    name, shape, data = content
    dtype = BFLOAT16 if name == "bfloat16" else np.dtype(name)
    array = np.frombuffer(base64.b64decode(data), dtype).reshape(shape)
    array = array.astype(dtype.newbyteorder("="))
    return array if tag == "array" else array[()]
