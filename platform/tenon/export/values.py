"""Arguments, attrs and nested structures of a graph as JSON data.

Numbers, strings, booleans and None are JSON's own, a list is a list; everything else is an object with one
key: ``{"ref": [node, output]}``, ``{"tuple": [...]}``, ``{"dtype": "float32"}``, ``{"slice": [...]}``,
``{"ellipsis": true}``, ``{"size": "4*batch"}``, ``{"float": "inf"}``, ``{"complex": [re, im]}``,
``{"bfloat16": 0.5}`` for a number in an op of bfloat16 tensors,
``{"dict": [[key, value], ...]}``, ``{"index": true}`` in the layout of an op that indexes by arrays, and
``{"draw": [function, shape, dtype, numbers, arrays, order]}`` of random numbers, with ``[number, state]``
of the generator as seventh element if it is not the process's.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tenon import dtypes
from tenon.engine.aval import Aval
from tenon.errors import BundleError, LoweringError, TenonError
from tenon.export.json_types import Json, as_list
from tenon.export.sizes import Expression, Size, parse
from tenon.graph.graph import Node, Ref
from tenon.random.draws import BROADCAST, Draw
from tenon.random.draws import FUNCTIONS as DRAWS
from tenon.random.draws import PARAMETERS as DRAWN_BY
from tenon.random.generator import Generator, stream_of
from tenon.tensors.index_parsing import INDEX
from tenon.tensors.pytree import LEAF, TreeSpec

#: A plain value of any type.
Plain: TypeAlias = Any
_NONE = type(None)
#: The type of a number that an op of bfloat16 tensors takes: with a Python number NumPy computes in float32.
_BFLOAT16 = dtypes.bfloat16.numpy.type
#: The types of numbers as arguments of ops.
NUMBERS = int | float | complex | _BFLOAT16
#: Nested values and arguments that are read.
_MAX_DEPTH = 64


def dtype_name(dtype: np.dtype | dtypes.dtype) -> str:
    """Return the name of a dtype: ``float32``, ``bfloat16``, ``bool``."""
    return (dtypes.FROM_NUMPY[dtype] if isinstance(dtype, np.dtype) else dtype).name


def dtype_named(name: Json) -> np.dtype:
    """Return the dtype of that name; BundleError if there is none."""
    if type(name) is not str or name not in dtypes.BY_NAME:
        raise BundleError(f"unknown dtype {name!r:.80}.")
    return dtypes.BY_NAME[name].numpy


def is_plain(value: Plain) -> bool:
    """Whether ``encode`` can write ``value``."""
    if isinstance(value, dict):
        return all(map(is_plain, value)) and all(map(is_plain, value.values()))
    if isinstance(value, tuple | list) and value.__class__ is not Ref:
        return all(map(is_plain, value))
    if isinstance(value, slice):
        return all(map(is_plain, (value.start, value.stop, value.step)))
    if isinstance(value, Draw):
        return is_writable(value)
    return value.__class__ is Ref or value is Ellipsis or value is INDEX or isinstance(value, _SINGLE)


_SINGLE = (
    bool,
    int,
    float,
    complex,
    str,
    type(None),
    np.dtype,
    dtypes.dtype,
    np.integer,
    np.floating,
    np.bool_,
    _BFLOAT16,
)


def encode(value: Plain, positions: Mapping[Node, int] | None = None) -> Json:
    """Return ``value`` as JSON data; LoweringError for values that a file cannot hold."""
    if value.__class__ is Ref and positions is not None:
        return {"ref": [positions[value.node], value.index]}
    if isinstance(value, _BFLOAT16):
        return {"bfloat16": encode(float(value))}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Expression):
        return {"size": str(value)}
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, complex):
        return {"complex": [encode(value.real), encode(value.imag)]}
    if isinstance(value, np.dtype | dtypes.dtype):
        return {"dtype": dtype_name(value)}
    if isinstance(value, slice):
        return {"slice": [encode(part) for part in (value.start, value.stop, value.step)]}
    if value is Ellipsis:
        return {"ellipsis": True}
    if value is INDEX:
        return {"index": True}
    if isinstance(value, list):
        return [encode(item, positions) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [encode(item, positions) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[encode(k), encode(item, positions)] for k, item in value.items()]}
    if isinstance(value, Draw) and is_writable(value):
        order = None if value.order is None else list(value.order)
        numbers = [[name, encode(number)] for name, number in value.arguments]
        names: list[Json] = [*value.arrays]
        shape, dtype = [*map(encode, value.shape)], dtype_name(value.dtype)
        return {"draw": [value.function, shape, dtype, numbers, names, order]}
    raise LoweringError(f"a {type(value).__name__} ({value!r:.80}) cannot be written to a file.")


def is_writable(draw: Draw) -> bool:
    """Whether a draw can be written: it takes numbers only, and its generator is one of the CPU."""
    on_cpu = draw.generator is None or draw.generator.device.type == "cpu"
    numbers = [number for _, number in draw.arguments]
    return on_cpu and all(v is None or isinstance(v, bool | int | float | Expression) for v in numbers)


def encode_generator(generator: Generator, known: dict[int, int]) -> Json:
    """Return the number of a generator, by its id in ``known``, and its state; ``known`` is added to."""
    number = known.setdefault(id(generator), len(known))
    return [number, base64.b64encode(stream_of(generator).state().tobytes()).decode()]


def _generator(body: Json, known: dict[int, tuple[str, Generator]]) -> Generator:
    """Return the generator that ``encode_generator`` wrote, the same for the same number."""
    number, state = as_list(body)
    if type(number) is not int or type(state) is not str:
        raise BundleError("a generator is a number and a state.")
    if number not in known:
        try:
            generator = Generator()
            stream_of(generator).set_state(np.frombuffer(base64.b64decode(state, validate=True), np.uint8))
        except (ValueError, TenonError) as error:
            raise BundleError(f"the state of a generator is damaged: {error}") from error
        known[number] = (state, generator)
    first, generator = known[number]
    if first != state:
        raise BundleError(f"generator {number} has two states.")
    return generator


_WHOLE = int | Expression
_NUMBER = int | float | Expression
#: The types of the parameters of draws that are no numbers.
_DRAWN_BY = {"replacement": bool, "num_samples": _WHOLE, "from_": _WHOLE | None, "to": _WHOLE | None}


def _draw(body: Json, ref: Decoder) -> Draw:
    """Return the draw that ``encode`` wrote; BundleError for any other."""
    function, extents, dtype, numbers, arrays, order, *rest = as_list(body)
    shape = [decode(extent, ref) for extent in as_list(extents)]
    if function not in DRAWS or not {*arrays, *(name for name, _ in numbers)} <= DRAWN_BY:
        raise BundleError(f"no function {function!r:.80} draws random numbers by such arguments.")
    given = tuple((name, decode(number, ref)) for name, number in numbers)
    sizes = (*(size for size in shape if not isinstance(size, Expression)), *(order or ()))
    if any(not isinstance(n, _DRAWN_BY.get(name, _NUMBER)) for name, n in given) or any(
        type(n) is not int or n < 0 for n in sizes
    ):
        raise BundleError("the parameters of a random draw must be numbers.")
    if len(rest) > 1:
        raise BundleError("a draw has six elements, or seven with a generator.")
    if order is not None and sorted(order) != list(range(len(shape))):
        raise BundleError(f"{order!r:.80} is not a permutation of {len(shape)} axes.")
    axes = None if order is None else tuple(order)
    generator = _generator(rest[0], ref.generators) if rest else None
    return Draw(function, tuple(shape), dtype_named(dtype), given, tuple(arrays), axes, generator)


def draws_broadcast(draw: Draw, args: Sequence[object]) -> bool:
    """Whether a draw has the parameters of its function, arrays that broadcast to its shape."""
    if draw.arguments or draw.arrays != BROADCAST[draw.function]:
        return False
    shapes = [arg.aval.shape for arg in args if isinstance(arg, Ref)]
    try:
        return len(shapes) == len(args) and np.broadcast_shapes(*shapes) == draw.shape
    except ValueError:
        return False


def draws_indices(draw: Draw, args: Sequence[object]) -> bool:
    """Whether a draw by weights has one array, of as many rows as it draws indices for."""
    if draw.arrays != ("probs",) or not isinstance(args[0], Ref) or draw.dtype != np.int64:
        return False
    return draw.shape == (*args[0].aval.shape[:-1], dict(draw.arguments).get("num_samples"))


def check_drawn(attrs: Mapping[str, object], outputs: tuple[Aval, ...]) -> None:
    """Raise BundleError unless a call draws random numbers, as many as it has."""
    draw = attrs.get("make")
    if len(attrs) != 1 or not isinstance(draw, Draw):
        raise BundleError("a call of host_draw draws no random numbers.")
    if outputs != (Aval(draw.shape, draw.dtype),):
        raise BundleError(f"{draw.function} draws {Aval(draw.shape, draw.dtype)!r}, not {outputs!r:.200}.")


def check_parameters(node: Node) -> None:
    """Raise BundleError unless a draw fits the arrays that it reads, at the example's sizes."""
    draw, args = node.attrs["make"], node.args
    if len(args) != len(draw.arrays):
        raise BundleError("a call of host_draw draws no random numbers.")
    if draw.function == "multinomial" and not draws_indices(draw, args):
        raise BundleError("a draw of multinomial does not fit its probabilities.")
    if draw.function in BROADCAST and not draws_broadcast(draw, args):
        raise BundleError(f"a draw of {draw.function} does not fit its parameters.")


class Decoder:
    """Decodes values; ``ref`` looks up references, and sizes are expressions of ``symbols``."""

    def __init__(self, ref: Callable[[Json], Ref] | None = None, symbols: Sequence[str] = ()) -> None:
        self.ref, self.symbols = ref, symbols
        #: Number -> state and generator of draws.
        self.generators: dict[int, tuple[str, Generator]] = {}

    def size(self, text: Json) -> Size:
        """Return the size that ``text`` writes."""
        return parse(text, self.symbols)


_PLAIN_DECODER = Decoder()


def decode(node: Json, ref: Decoder = _PLAIN_DECODER, depth: int = 0) -> Plain:
    """Return the value of JSON data; ``ref`` finds references and sizes."""
    if depth > _MAX_DEPTH:
        raise BundleError(f"a value is nested deeper than {_MAX_DEPTH}.")
    if type(node) is list:
        return [decode(item, ref, depth + 1) for item in node]
    if type(node) is not dict:
        return node
    if len(node) != 1:
        raise BundleError(f"a value has the keys {sorted(node)!r:.200}, where one belongs.")
    ((tag, body),) = node.items()
    if tag == "ref":
        if ref.ref is None:
            raise BundleError("a reference stands where a plain value belongs.")
        return ref.ref(body)
    if tag == "size":
        return ref.size(body)
    if tag == "tuple":
        return tuple(decode(body, ref, depth + 1)) if type(body) is list else _refuse(tag, body)
    if tag == "dtype":
        return dtype_named(body)
    if tag == "float" and body in ("inf", "-inf", "nan"):
        return float(body)
    if tag == "bfloat16" and type(number := decode(body)) in (int, float):
        return _BFLOAT16(number)
    if tag == "ellipsis":
        return Ellipsis
    if tag == "index":
        return INDEX
    if tag == "draw":
        return _draw(body, ref)
    if tag == "slice" and type(body) is list and len(body) == 3:
        return slice(*(_whole(decode(part, ref)) for part in body))
    if tag == "complex" and type(body) is list and len(body) == 2:
        return complex(*(decode(part) for part in body))
    if tag == "dict" and type(body) is list:
        return {decode(k): decode(v, ref, depth + 1) for k, v in body}
    return _refuse(tag, body)


def _whole(part: Plain) -> Size | None:
    if part is not None and type(part) is not int and not isinstance(part, Expression):
        raise BundleError(f"a slice has {part!r:.80} where an integer belongs.")
    return part


def _refuse(tag: str, body: Json) -> Plain:
    raise BundleError(f"an unknown value {{{tag!r:.80}: {body!r:.80}}}.")


def same_structure(a: TreeSpec, b: TreeSpec) -> bool:
    """Whether two structures are the same in a file, which has no classes of named tuples."""
    return bool(encode_spec(a) == encode_spec(b))


def encode_spec(spec: TreeSpec) -> Json:
    """Return a nested structure as JSON data; named tuples and registered classes become dictionaries and
    tuples."""
    if spec.is_leaf():
        return None
    children = [encode_spec(child) for child in spec.children_specs]
    if spec.type is list:
        return {"list": children}
    if spec.type == "namedtuple":
        return {"dict": [[name, child] for name, child in zip(spec.context._fields, children, strict=True)]}
    if isinstance(spec.type, type) and issubclass(spec.type, dict):
        return {"dict": [[encode(k), child] for k, child in zip(spec.context[0], children, strict=True)]}
    return {"tuple": children}


def decode_spec(node: Json, depth: int = 0) -> TreeSpec:
    """Return the structure of JSON data."""
    if node is None:
        return LEAF
    if depth > _MAX_DEPTH or type(node) is not dict or len(node) != 1:
        raise BundleError(f"expected a nested structure, got {node!r:.80}.")
    ((tag, body),) = node.items()
    if type(body) is not list:
        raise BundleError(f"expected a list of the parts of a {tag!r:.80}, got {body!r:.80}.")
    if tag in ("list", "tuple"):
        children = tuple(decode_spec(child, depth + 1) for child in body)
        return TreeSpec(list if tag == "list" else tuple, None, children)
    if tag == "dict":
        keys = [decode(key) for key, _ in body]
        return TreeSpec(dict, (keys, None), tuple(decode_spec(child, depth + 1) for _, child in body))
    raise BundleError(f"unknown kind of nested structure {tag!r:.80}.")
