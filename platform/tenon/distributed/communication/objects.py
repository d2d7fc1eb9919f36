"""Serialize plain Python values for other ranks as JSON, which is data and can never be code.

torch pickles them, so that any rank can execute code on any other. None, bool, int, float, str, bytes,
complex, list, tuple, set, dict, NumPy numbers and arrays, and tensors are decoded to equal values, tensors
without their gradients and on the CPU; values of any other type raise an error that names the type.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np

from tenon.distributed.communication.reduction import BFLOAT16, check_transferable
from tenon.errors import CommunicatorError
from tenon.nn.parameter import Parameter
from tenon.tensors.creation.create import from_numpy
from tenon.tensors.tensor import Tensor

#: A value of JSON: None, bool, int, float, str, or a list ``[tag, content]``.
Json: TypeAlias = Any

DEEPEST = 100


def encode(value: object) -> bytes:
    """``value`` as bytes; raises ``CommunicatorError`` naming the part that cannot be sent.

    >>> decode(encode({"best": (0.5, None), 3: [b"raw"]}))
    {'best': (0.5, None), 3: [b'raw']}
    """
    return json.dumps(_pack(value, "object", 0), separators=(",", ":")).encode()


def decode(payload: bytes) -> Any:  # of the type that was encoded
    """The value that was encoded; its type is that of the sender's value."""
    return _unpack(json.loads(payload))


def _pack(value: object, path: str, depth: int) -> Json:
    """JSON for ``value``: scalars unchanged, everything else as ``[tag, content]``."""
    if depth > DEEPEST:
        raise CommunicatorError(f"{path} is nested more than {DEEPEST} deep. Send it in parts.")
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is complex:
        return ["complex", [value.real, value.imag]]
    if type(value) is list or type(value) is tuple or type(value) is set or type(value) is frozenset:
        items = [_pack(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
        return [type(value).__name__, items]
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
    if type(value) is Tensor or type(value) is Parameter:
        host = np.asarray(value.detach().cpu().raw)
        return [
            "parameter" if type(value) is Parameter else "tensor",
            [_pack_array(host), value.requires_grad],
        ]
    raise CommunicatorError(f"{path} is a {type(value).__module__}.{type(value).__qualname__}. {_ADVICE}")


_ADVICE = (
    "Ranks exchange only None, numbers, str, bytes, list, tuple, set, dict, NumPy values and tensors, never "
    "pickles. Send its fields as a dict."
)


_SEQUENCES: dict[str, Callable[[Iterable[object]], object]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
}


def _pack_array(value: np.ndarray | np.generic) -> Json:
    """``["array" or "number", [dtype, shape, data]]``: little-endian values in base64."""
    array = np.asarray(value)
    check_transferable(array.dtype)
    array = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(array.shape)
    name = "bfloat16" if array.dtype == BFLOAT16 else array.dtype.str
    tag = "array" if isinstance(value, np.ndarray) else "number"
    return [tag, [name, list(array.shape), base64.b64encode(array.tobytes()).decode("ascii")]]


def _unpack(packed: Json) -> Any:  # of the type that was encoded
    """The value that ``_pack`` has packed."""
    if not isinstance(packed, list):
        return packed
    tag, content = packed
    if tag == "list":
        return [_unpack(item) for item in content]
    if tag in _SEQUENCES:
        return _SEQUENCES[tag](_unpack(item) for item in content)
    if tag == "complex":
        return complex(*content)
    if tag in ("tensor", "parameter"):
        tensor = from_numpy(_unpack(content[0]))
        return Parameter(tensor, content[1]) if tag == "parameter" else tensor.requires_grad_(content[1])
    if tag == "dict":
        return {_unpack(key): _unpack(item) for key, item in content}
    if tag == "bytes":
        return base64.b64decode(content)
    name, shape, data = content
    dtype = BFLOAT16 if name == "bfloat16" else np.dtype(name)
    array = np.frombuffer(base64.b64decode(data), dtype).reshape(shape)
    array = array.astype(dtype.newbyteorder("="))
    return array if tag == "array" else array[()]
