"""The structure of a saved object as JSON, which a safetensors file has in addition to its tensors.

Numbers, strings, None and lists are encoded as JSON's; all other values as an object with one tag:
``{"dict": {...}}``, ``{"tuple": [...]}``, ``{"tensor": 3}`` (an index into the manifest's table of tensors),
``{"bytes": "base64"}`` and so on. Unknown tags raise an error.
"""

from __future__ import annotations

import base64
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tenon import dtypes
from tenon.device import Device
from tenon.dtypes import dtype
from tenon.errors import CheckpointError
from tenon.serialize import contents
from tenon.serialize.contents import Path
from tenon.serialize.limits import check_key, short
from tenon.tensors.size import Size
from tenon.tensors.tensor import Tensor

#: What a node of the manifest contains: JSON of any kind.
Json: TypeAlias = Any
#: Returns the index of a tensor at a key path.
Number: TypeAlias = Callable[[Tensor, Path], int]


def encode(value: object, number: Number, path: Path = ()) -> object:
    """``value`` as JSON data, with tensors replaced by their indices."""
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
    return _encode_scalar(value, path)


def _encode_container(value: object, kind: type, number: Number, path: Path) -> object:
    if isinstance(value, dict):
        node = {_DICT_TAGS[kind]: _encode_items(value, number, path)}
        attributes = contents.attributes_of(value, path)
        if attributes:
            node["metadata"] = encode(attributes["_metadata"], number, (*path, contents.METADATA))
        return node
    if isinstance(value, set):
        members = [contents.check_key(v, (*path, contents.MEMBER)) for v in value]
        return {"set": [encode(v, number, (*path, contents.MEMBER)) for v in members]}
    assert isinstance(value, (list, tuple))
    items = [encode(item, number, (*path, index)) for index, item in enumerate(value)]
    return items if kind is list else {"size" if kind is Size else "tuple": items}


def _encode_items(mapping: dict[object, object], number: Number, path: Path) -> object:
    """The items as a JSON object if all keys are strings, else as a list of pairs."""
    keys = [contents.check_key(key, (*path, key)) for key in mapping]
    values = [encode(item, number, (*path, key)) for key, item in mapping.items()]
    if all(type(key) is str and _is_unicode(key) for key in keys):
        return dict(zip(keys, values, strict=True))
    return [[encode(k, number, (*path, contents.KEY)), v] for k, v in zip(keys, values, strict=True)]


def _is_unicode(text: str) -> bool:
    """Whether JSON preserves ``text``: two lone surrogates in a row would be decoded as one character."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _encode_scalar(value: object, path: Path) -> object:
    if type(value) is str:
        return value if _is_unicode(value) else {"str": [ord(character) for character in value]}
    if type(value) is int:
        return contents.check_integer(value, path)
    if type(value) is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if type(value) is complex:
        return {"complex": [_encode_scalar(part, path) for part in (value.real, value.imag)]}
    if type(value) is bytes or type(value) is bytearray:
        return {type(value).__name__: base64.b64encode(value).decode()}
    if type(value) is dtype:
        return {"dtype": value.name}
    return {"device": str(value)} if type(value) is Device else value


def decode(node: object, tensors: Sequence[Tensor]) -> object:
    """The value of a JSON node; raises an error of any kind if the node is malformed."""
    if type(node) is list:
        return [decode(item, tensors) for item in node]
    if type(node) is not dict:
        return node
    tag = next((name for name in node if name != "metadata"), "")
    if tag not in _DECODERS or set(node) - {tag, "metadata"}:
        raise CheckpointError(f"the structure has an unknown part {short(sorted(node))}")
    value = _DECODERS[tag](node[tag], tensors)
    if "metadata" in node:
        if type(value) is not OrderedDict:
            raise CheckpointError("`_metadata` belongs to something other than an OrderedDict")
        vars(value)["_metadata"] = decode(node["metadata"], tensors)
    return value


def _list(body: object) -> list[Json]:
    """``body``, which must be a list of JSON nodes."""
    if type(body) is not list:
        raise CheckpointError(f"the structure has a {type(body).__name__} where a list belongs")
    return body


def _text(body: object) -> str:
    """``body``, which must be a string."""
    if type(body) is not str:
        raise CheckpointError(f"the structure has a {type(body).__name__} where a string belongs")
    return body


def _items(body: object, tensors: Sequence[Tensor]) -> list[tuple[object, Json]]:
    """The keys and values of a dict."""
    if type(body) is dict:
        return [(key, decode(item, tensors)) for key, item in body.items()]
    pairs = [(decode(key, tensors), decode(item, tensors)) for key, item in _list(body)]
    for key, _ in pairs:
        check_key(key)
    return pairs


def _tensor(body: object, tensors: Sequence[Tensor]) -> Tensor:
    if type(body) is not int or not 0 <= body < len(tensors):
        raise CheckpointError(f"the structure refers to tensor {short(body)} of {len(tensors)}")
    return tensors[body]


def _members(body: object, tensors: Sequence[Tensor]) -> set[object]:
    """The members of a set."""
    members = [decode(item, tensors) for item in _list(body)]
    for member in members:
        check_key(member)
    return set(members)


def _size(body: object) -> Size:
    if any(type(n) is not int for n in _list(body)):
        raise CheckpointError(f"a torch.Size is written as {short(body)}")
    return Size(_list(body))


def _float(body: object) -> float:
    """A float that JSON cannot represent."""
    if body not in ("inf", "-inf", "nan"):
        raise CheckpointError(f"a float is written as {short(body)}")
    return float(_text(body))


def _complex(body: object, tensors: Sequence[Tensor]) -> complex:
    real, imaginary = (decode(part, tensors) for part in _list(body))
    if not isinstance(real, (int, float)) or not isinstance(imaginary, (int, float)):
        raise CheckpointError(f"a complex number is written as {short(body)}")
    return complex(real, imaginary)


_DICT_TAGS: dict[type, str] = {dict: "dict", OrderedDict: "ordered_dict", Counter: "counter"}

_DECODERS: dict[str, Callable[[object, Sequence[Tensor]], object]] = {
    "dict": lambda body, tensors: dict(_items(body, tensors)),
    "ordered_dict": lambda body, tensors: OrderedDict(_items(body, tensors)),
    "counter": lambda body, tensors: Counter(dict(_items(body, tensors))),
    "tuple": lambda body, tensors: tuple(decode(item, tensors) for item in _list(body)),
    "size": lambda body, tensors: _size(body),
    "set": _members,
    "tensor": _tensor,
    "str": lambda body, tensors: "".join(map(chr, _list(body))),
    "float": lambda body, tensors: _float(body),
    "complex": _complex,
    "bytes": lambda body, tensors: base64.b64decode(_text(body), validate=True),
    "bytearray": lambda body, tensors: bytearray(base64.b64decode(_text(body), validate=True)),
    "dtype": lambda body, tensors: dtypes.BY_NAME[_text(body)],
    "device": lambda body, tensors: Device(_text(body)),
}
