"""The structure of a saved object as JSON: what a safetensors file carries beside its tensors.

Numbers, strings, None and lists are themselves; everything else is an object with one tag:
``{"dict": {...}}``, ``{"tuple": [...]}``, ``{"tensor": 3}`` (an index into the manifest's table of
tensors), ``{"bytes": "base64"}`` and so on. Reading knows these tags and no others.
"""

from __future__ import annotations

import base64
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from tenon import dtypes
from tenon.device import Device
from tenon.dtypes import dtype
from tenon.errors import CheckpointError
from tenon.serialize import contents
from tenon.serialize.contents import Path
from tenon.serialize.pickle_reader import check_key
from tenon.tensors.size import Size
from tenon.tensors.tensor import Tensor


def encode(value: Any, number: Callable[[Any, Path], int], path: Path = ()) -> Any:
    """``value`` as JSON data; ``number`` gives each tensor its index."""
    value = contents.simple(value)
    kind = type(value)
    if isinstance(value, Tensor):
        return {"tensor": number(value, path)}
    if kind in contents.MAPPINGS or kind in contents.SEQUENCES:
        if len(path) >= contents.MAX_DEPTH:
            contents.refuse_depth(path)
        return _encode_container(value, kind, number, path)
    if kind not in contents.SCALARS:
        contents.refuse(value, path)
    return _encode_scalar(value, kind, path)


def _encode_container(value: Any, kind: type, number: Callable[[Any, Path], int], path: Path) -> Any:
    if issubclass(kind, dict):
        node = {_DICT_TAGS[kind]: _encode_items(value, number, path)}
        attributes = contents.attributes_of(value, path)
        if attributes:
            node["metadata"] = encode(attributes["_metadata"], number, (*path, contents.METADATA))
        return node
    if kind is set:
        members = [contents.check_key(v, (*path, contents.MEMBER)) for v in value]
        return {"set": [encode(v, number, (*path, contents.MEMBER)) for v in members]}
    items = [encode(item, number, (*path, index)) for index, item in enumerate(value)]
    return items if kind is list else {"size" if kind is Size else "tuple": items}


def _encode_items(mapping: Any, number: Callable[[Any, Path], int], path: Path) -> Any:
    keys = [contents.check_key(key, (*path, key)) for key in mapping]
    values = [encode(item, number, (*path, key)) for key, item in mapping.items()]
    if all(type(key) is str and _is_unicode(key) for key in keys):
        return dict(zip(keys, values, strict=True))
    return [[encode(k, number, (*path, contents.KEY)), v] for k, v in zip(keys, values, strict=True)]


def _is_unicode(text: str) -> bool:
    """Whether JSON keeps ``text``: two lone surrogates in a row would come back as one character."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _encode_scalar(value: Any, kind: type, path: Path) -> Any:
    if kind is str:
        return value if _is_unicode(value) else {"str": [ord(character) for character in value]}
    if kind is int:
        return contents.check_integer(value, path)
    if kind is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if kind is complex:
        return {"complex": [_encode_scalar(part, float, path) for part in (value.real, value.imag)]}
    if kind is bytes or kind is bytearray:
        return {kind.__name__: base64.b64encode(value).decode()}
    if kind is dtype:
        return {"dtype": value.name}
    return {"device": str(value)} if kind is Device else value


def decode(node: Any, tensors: Sequence[Any]) -> Any:
    """The value of a JSON node."""
    if type(node) is list:
        return [decode(item, tensors) for item in node]
    if type(node) is not dict:
        return node
    tag = next((name for name in node if name != "metadata"), "")
    if tag not in _DECODERS or set(node) - {tag, "metadata"}:
        raise CheckpointError(f"the structure has an unknown part {sorted(node)}")
    value = _DECODERS[tag](node[tag], tensors)
    if "metadata" in node:
        if type(value) is not OrderedDict:
            raise CheckpointError("metadata stand at something that is no OrderedDict")
        vars(value)["_metadata"] = decode(node["metadata"], tensors)
    return value


def _items(body: Any, tensors: Sequence[Any]) -> list[tuple[Any, Any]]:
    if type(body) is dict:
        return [(key, decode(item, tensors)) for key, item in body.items()]
    pairs = [(decode(key, tensors), decode(item, tensors)) for key, item in body]
    for key, _ in pairs:
        check_key(key)
    return pairs


def _tensor(body: Any, tensors: Sequence[Any]) -> Any:
    if type(body) is not int or not 0 <= body < len(tensors):
        raise CheckpointError(f"the structure refers to tensor {body!r} of {len(tensors)}")
    return tensors[body]


def _members(body: Any, tensors: Sequence[Any]) -> set[Any]:
    members = [decode(item, tensors) for item in body]
    for member in members:
        check_key(member)
    return set(members)


def _size(body: Any) -> Size:
    if any(type(n) is not int for n in body):
        raise CheckpointError(f"a size of {body!r}")
    return Size(body)


def _float(body: Any) -> float:
    if body not in ("inf", "-inf", "nan"):
        raise CheckpointError(f"a float is spelt {body!r}")
    return float(body)


_DICT_TAGS: dict[type, str] = {dict: "dict", OrderedDict: "ordered_dict", Counter: "counter"}

_DECODERS: dict[str, Callable[[Any, Sequence[Any]], Any]] = {
    "dict": lambda body, tensors: dict(_items(body, tensors)),
    "ordered_dict": lambda body, tensors: OrderedDict(_items(body, tensors)),
    "counter": lambda body, tensors: Counter(dict(_items(body, tensors))),
    "tuple": lambda body, tensors: tuple(decode(item, tensors) for item in body),
    "size": lambda body, tensors: _size(body),
    "set": _members,
    "tensor": _tensor,
    "str": lambda body, tensors: "".join(map(chr, body)),
    "float": lambda body, tensors: _float(body),
    "complex": lambda body, tensors: complex(*(decode(part, tensors) for part in body)),
    "bytes": lambda body, tensors: base64.b64decode(body, validate=True),
    "bytearray": lambda body, tensors: bytearray(base64.b64decode(body, validate=True)),
    "dtype": lambda body, tensors: dtypes.BY_NAME[body],
    "device": lambda body, tensors: Device(body),
}
