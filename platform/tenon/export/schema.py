"""``graph.json``: a captured graph as text, in a versioned schema; ``docs/guide/graph-json.md`` describes it.

``document.py`` writes it. ``from_document`` reads and checks: every reference is to an earlier node, every op
exists and infers the stored shapes, and sizes are bounded. The file cannot cause code to be executed or large
memory to be allocated.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence

import tenon.ops  # noqa: F401 - defines the ops
from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Op, table
from tenon.errors import BundleError, TenonError
from tenon.export import values
from tenon.export.axes import axes_of, known_symbols, named_axes
from tenon.export.captured import CapturedGraph, Guard, Symbol
from tenon.export.document import SCHEMA, VERSION
from tenon.export.document import to_document as to_document
from tenon.export.document import views_of as views_of
from tenon.export.json_types import Json, as_list, as_object, as_string
from tenon.export.places import expressions, put
from tenon.export.signature import Result, ScalarInput, Signature, TensorArgument
from tenon.export.sizes import Expression
from tenon.export.symbolic.size_guards import SizeGuard
from tenon.graph.graph import Node, Ref, Write
from tenon.graph.scalar_functions import FUNCTIONS
from tenon.graph.scalars import COMPARISONS, QUESTIONS
from tenon.tensors.tensor import Tensor

#: The largest file that is read, the most nodes, axes, and the largest array, in bytes.
MAX_FILE, MAX_NODES, MAX_AXES, MAX_BYTES = 1 << 28, 1_000_000, 64, 1 << 38
#: Kinds of state; arguments are "argument".
_ROLES = frozenset({"parameter", "buffer", "optimizer", "gradient", "tensor"})
_NODE_KEYS = {
    "input": {"kind", "name", "role", "dtype", "shape", "view"},
    "constant": {"kind", "name", "dtype", "shape"},
    "scalar": {"kind", "function", "args", "name", "value", "increment"},
    "call": {"kind", "op", "args", "attrs", "outputs", "module", "where", "phase"},
}


def parse(data: bytes, source: str) -> dict[str, Json]:
    """Return the JSON object in ``data``; BundleError, naming ``source``, if it is anything else."""
    if len(data) > MAX_FILE:
        raise BundleError(f"{source} has {len(data):,} bytes; at most {MAX_FILE:,} are read.")
    try:
        document = json.loads(data, object_pairs_hook=_distinct, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{source} is not JSON: {error}.") from error
    if not isinstance(document, dict):
        raise BundleError(f"{source} holds a {type(document).__name__}, not an object.")
    return document


def _distinct(pairs: Sequence[tuple[str, Json]]) -> dict[str, Json]:
    """Return the object of ``pairs``; ValueError for a key that is there twice, which JSON readers treat
    differently."""
    result = dict(pairs)
    if len(result) < len(pairs):
        ((key, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {key!r:.80} occurs twice")
    return result


def _refuse_constant(text: str) -> Json:
    raise ValueError(f"{text} is not a number")


def check_schema(document: Mapping[str, Json], schema: str, version: int, source: str) -> None:
    """Raise BundleError unless ``document`` declares this schema and a known version."""
    if document.get("schema") != schema:
        raise BundleError(f"{source} is of schema {document.get('schema')!r:.80}, not {schema!r}.")
    actual = document.get("version")
    if type(actual) is not int or actual != version:
        raise BundleError(
            f"{source} is of version {actual!r:.80} of its schema, and this tenon reads version {version}. "
            "Read it with the tenon that wrote it, or one that is newer."
        )


def from_document(document: Mapping[str, Json], arrays: Mapping[str, Tensor], source: str) -> CapturedGraph:
    """Return the graph that ``document`` describes, with ``arrays`` as its state and constants.

    BundleError, which names ``source``, for any inconsistency.
    """
    check_schema(document, SCHEMA, VERSION, source)
    try:
        return _Reader(document, arrays).graph()
    except BundleError as error:
        raise BundleError(f"{source}: {error!s:.600}") from error
    except (ArithmeticError, LookupError, RecursionError, TenonError, TypeError, ValueError) as error:
        raise BundleError(f"{source} is malformed: {error!r:.400}.") from error


class _Reader:
    """Builds a graph of a document, node by node."""

    def __init__(self, document: Mapping[str, Json], arrays: Mapping[str, Tensor]) -> None:
        self.document, self.arrays = document, arrays
        self.result = CapturedGraph()
        self.states: dict[str, str] = {}
        self.scalars: list[ScalarInput] = []
        self.names: set[str] = set()
        #: The states that others are views of.
        self.owners: set[str] = set()
        #: The sizes of the example by name, and the symbols: the graph gets them when all nodes are read,
        #: which have their expressions already.
        self.sizes: dict[str, int] = {}
        self.symbols: dict[str, Symbol] = {}
        self.decoder = values.Decoder(self._ref, [*document.get("symbols", ())])

    def graph(self) -> CapturedGraph:
        graph, document = self.result, self.document
        unknown = set(document) - {
            "schema", "version", "symbols", "nodes", "outputs", "writes", "guards", "size_guards",
            "signature",
        }  # fmt: skip
        if unknown:
            raise BundleError(f"unknown entries {sorted(unknown)!s:.300}.")
        for name, entry in as_object(document["symbols"]).items():
            self._symbol(name, entry)
        nodes = as_list(document["nodes"])
        if len(nodes) > MAX_NODES:
            raise BundleError(f"{len(nodes):,} nodes; at most {MAX_NODES:,} are read.")
        for position, entry in enumerate(nodes):
            try:
                self._node(entry)
            except (LookupError, TypeError, ValueError, TenonError) as error:
                raise BundleError(f"node {position}: {error}") from error
        graph.symbols = self.symbols
        graph.outputs = [self._ref(ref) for ref in as_list(document["outputs"])]
        graph.writes = [
            Write(graph.nodes[_index(w["target"], len(graph.nodes))], self._ref(w["value"]))
            for w in as_list(document["writes"])
        ]
        graph.guards = [self._guard(entry) for entry in as_list(document["guards"])]
        graph.size_guards = [self._size_guard(entry) for entry in as_list(document.get("size_guards", []))]
        if not graph.permits(self.sizes):
            raise BundleError("a guard of sizes does not hold for the example's.")
        graph.signature = self._signature(document["signature"])
        graph.dynamic = self._dynamic()
        lost = self.owners - {*self.states}
        if lost:
            raise BundleError(f"a state is a view of {min(lost)!r:.200}, which is not a state.")
        unused = set(self.arrays) - self.names
        if unused:
            raise BundleError(f"no node has the stored tensor {min(unused)!r}.")
        graph.verify()
        return graph

    def _symbol(self, name: str, entry: Mapping[str, Json]) -> None:
        example, least, most = entry["example"], entry["least"], entry["most"]
        numbers = [example, least] + ([] if most is None else [most])
        if not name.isidentifier() or any(type(n) is not int or not 0 <= n < 1 << 40 for n in numbers):
            raise BundleError(f"the symbol {name!r:.80} has invalid sizes.")
        self.symbols[name] = Symbol(example, least, most)
        self.sizes[name] = example

    def _dynamic(self) -> dict[str, dict[int, str]]:
        """Return the axes of arguments whose sizes are symbols."""
        for node in self.result.inputs:
            if node.value is not None and node in self.result.symbolic:
                raise BundleError(f"the state {node.label!r:.80} has sizes that change.")
        axes = axes_of(self.result)
        lost = set(self.result.symbols) - known_symbols(axes)
        if lost:
            raise BundleError(f"no size of an argument determines the symbol {min(lost)!r:.80}.")
        return named_axes(axes)

    def _resolve_sizes(self, node: Node) -> None:
        """Store the expressions in ``node``, and replace them by the sizes of the example."""
        symbolic = dict(expressions(node))
        if symbolic:
            self.result.symbolic[node] = symbolic
            put(node, {path: size.at(self.sizes) for path, size in symbolic.items()})
        for aval in node.avals:
            check_size(aval)

    def _node(self, entry: Mapping[str, Json]) -> None:
        kind = entry["kind"]
        if kind not in _NODE_KEYS:
            raise BundleError(f"unknown kind {kind!r:.80}.")
        unknown = set(entry) - _NODE_KEYS[kind]
        if unknown:
            raise BundleError(f"a node of kind {kind} has no {min(unknown)!r:.80}.")
        getattr(self, f"_{kind}")(entry)

    def _input(self, entry: Mapping[str, Json]) -> None:
        name, role, aval = self._name(entry), entry["role"], self._aval(entry)
        value = None
        if role in _ROLES:
            self.states[name] = role
            value = self._view(entry["view"], aval) if "view" in entry else self._stored(name, aval)
        elif role != "argument" or "view" in entry:
            raise BundleError(f"unknown role {role!r:.80}, or an argument that is a view.")
        self._resolve_sizes(self.result.input(aval, value, name))

    def _constant(self, entry: Mapping[str, Json]) -> None:
        name, aval = self._name(entry), self._aval(entry)
        self.result.constant(self._stored(name, aval).raw)

    def _aval(self, entry: Mapping[str, Json]) -> Aval:
        """Return a shape and dtype; the shape may contain expressions."""
        shape, dtype = as_list(entry["shape"]), values.dtype_named(entry["dtype"])
        if len(shape) > MAX_AXES:
            raise BundleError(f"a shape of {len(shape)} axes; at most {MAX_AXES} are read.")
        extents = [values.decode(extent, self.decoder) for extent in shape]
        for extent in extents:
            if type(extent) is not int and not isinstance(extent, Expression):
                raise BundleError(f"a size of {extent!r:.80}.")
        aval = Aval(tuple(extents), dtype)
        if all(type(extent) is int for extent in extents):
            check_size(aval)
        return aval

    def _name(self, entry: Mapping[str, Json]) -> str:
        name = _text(entry["name"])
        if name in self.names:
            raise BundleError(f"a second input is called {name!r:.200}.")
        self.names.add(name)
        return name

    def _stored(self, name: str, aval: Aval) -> Tensor:
        tensor = self.arrays.get(name)
        if tensor is None:
            raise BundleError(f"no tensor {name!r:.200} is stored.")
        if (tuple(tensor.raw.shape), tensor.raw.dtype) != (aval.shape, aval.dtype):
            own = Aval(tuple(tensor.raw.shape), tensor.raw.dtype)
            raise BundleError(f"the stored tensor {name!r:.200} is {own!r}, not {aval!r}.")
        return tensor

    def _view(self, entry: Mapping[str, Json], aval: Aval) -> Tensor:
        """Return a state that is a view of another, which is stored."""
        owner, offset, strides = _text(entry["of"]), entry["offset"], as_list(entry["strides"])
        base = self.arrays.get(owner)
        if base is None or not base.is_contiguous() or base.raw.dtype != aval.dtype or len(entry) != 3:
            raise BundleError(f"nothing is stored as {owner!r:.200} that this may be a view of.")
        numbers = (offset, *strides)
        if any(type(n) is not int or n < 0 for n in numbers) or len(strides) != len(aval.shape):
            raise BundleError(f"{numbers!r:.200} are not an offset and strides of {aval!r}.")
        last = offset + sum((size - 1) * stride for size, stride in zip(aval.shape, strides, strict=True))
        if 0 in aval.shape or last >= base.numel():
            raise BundleError(f"a view reaches element {last} of {owner!r:.200}, which has {base.numel()}.")
        self.owners.add(owner)
        return base.detach().as_strided(aval.shape, strides, base.storage_offset() + offset)

    def _scalar(self, entry: Mapping[str, Json]) -> None:
        function = entry["function"]
        if function == "input":
            name = self._name(entry)
            value, increment = (_number(values.decode(entry[key])) for key in ("value", "increment"))
            self.scalars.append(ScalarInput(name, value, increment))
            self.result.scalar("input", (), None, name)
            return
        if function not in FUNCTIONS:
            raise BundleError(f"unknown scalar function {function!r:.80}.")
        given = [values.decode(a, self.decoder) for a in as_list(entry["args"])]
        args = tuple(arg if arg.__class__ is Ref and arg.scalar else _number(arg) for arg in given)
        self.result.scalar(function, args)

    def _call(self, entry: Mapping[str, Json]) -> None:
        op = known_op(_text(entry["op"]))
        args = tuple(values.decode(a, self.decoder) for a in as_list(entry["args"]))
        for arg in args:
            if not (arg is None or isinstance(arg, Ref | Expression | values.NUMBERS)):
                raise BundleError(f"an argument of {op.name} is {arg!r:.80}, no value, number or null.")
        attrs = {
            _text(name): values.decode(value, self.decoder)
            for name, value in as_object(entry["attrs"]).items()
        }
        outputs = tuple(self._aval(output) for output in as_list(entry["outputs"]))
        if op.name == "host_draw":
            values.check_drawn(attrs, outputs)
        node = self.result.call(op, args, attrs, outputs)
        node.module, node.where, node.phase = (_text(entry.get(key, "")) for key in _TEXTS)
        self._resolve_sizes(node)
        if op.name == "host_draw":
            values.check_parameters(node)

    def _ref(self, ref: Json) -> Ref:
        position, index = as_list(ref)
        node = self.result.nodes[_index(position, len(self.result.nodes))]
        outputs = 1 if node.kind == "scalar" else len(node.avals)
        return Ref(node, _index(index, outputs))

    def _guard(self, entry: Mapping[str, Json]) -> Guard:
        question = entry["question"]
        if question not in QUESTIONS:
            raise BundleError(f"a guard has the unknown question {question!r:.80}.")
        other, answer = (values.decode(entry["other"], self.decoder), values.decode(entry["answer"]))
        if not isinstance(answer, int | float):
            raise BundleError("the answer of a guard is not a number.")
        return Guard(self._ref(entry["value"]), question, other, answer, _text(entry["where"]))

    def _size_guard(self, entry: Mapping[str, Json]) -> SizeGuard:
        left, right = (values.decode(entry[side], self.decoder) for side in ("left", "right"))
        if any(type(size) is not int and not isinstance(size, Expression) for size in (left, right)):
            raise BundleError("a guard of sizes compares something else.")
        if entry["question"] not in COMPARISONS or type(entry["answer"]) is not bool or len(entry) != 5:
            raise BundleError(f"a guard of sizes asks {entry['question']!r:.80}, or has other entries.")
        return SizeGuard(left, entry["question"], right, entry["answer"], _text(entry["where"]))

    def _signature(self, entry: Mapping[str, Json]) -> Signature:
        arguments = [
            TensorArgument(_text(a["tensor"])) if "tensor" in a else values.decode(a["value"])
            for a in as_list(entry["arguments"])
        ]
        given = [a.name for a in arguments if isinstance(a, TensorArgument)]
        own = [n.label for n in self.result.inputs if n.label not in self.states]
        if sorted(given) != sorted(own):
            raise BundleError(f"the signature takes {given}, but the graph's arguments are {own}.")
        outputs = len(self.result.outputs)
        returned = [
            Result(_index(r["output"], outputs)) if "output" in r else values.decode(r["value"])
            for r in as_list(entry["returned"])
        ]
        in_spec, out_spec = (values.decode_spec(entry["in"]), values.decode_spec(entry["out"]))
        if in_spec.num_leaves != len(arguments) or out_spec.num_leaves != len(returned):
            raise BundleError("a nested structure has another number of leaves than the signature.")
        aliases = {name: _text(label) for name, label in as_object(entry.get("aliases", {})).items()}
        for name, label in aliases.items():
            if label not in self.states or name in self.names or not _is_path(name):
                raise BundleError(f"{name!r:.200} cannot be another name of {label!r:.200}.")
        return Signature(
            in_spec, tuple(arguments), out_spec, tuple(returned), self.states, tuple(self.scalars), aliases
        )


#: What a call has for its reader.
_TEXTS = ("module", "where", "phase")


def known_op(name: str) -> Op:
    """Return the op of that name; BundleError if there is none, or one that calls Python functions."""
    try:
        op = table[name]
    except (LookupError, AttributeError):
        raise BundleError(f"unknown op {name!r:.80}. Its plugin may not be installed.") from None
    if op.kind is Kind.COLLECTIVE or name in ("host_call", "host_map"):
        raise BundleError(f"the op {name!r} is not allowed in a file.")
    return op


def check_size(aval: Aval) -> None:
    """Raise BundleError for an array of more than ``MAX_BYTES``."""
    size = aval.dtype.itemsize
    for extent in aval.shape:
        if extent < 0:
            raise BundleError(f"a size of {extent}.")
        size *= max(extent, 1)
        if size > MAX_BYTES:
            raise BundleError(
                f"an array of shape {list(aval.shape)!r:.200} has more than {MAX_BYTES:,} bytes."
            )


def _text(value: Json) -> str:
    """Return a string that can be printed: it may be a name or a place."""
    if not as_string(value).isprintable():
        raise BundleError(f"the text {value!r:.80} has characters that cannot be printed.")
    return value


def _is_path(name: str) -> bool:
    """Whether ``name`` may be that of a parameter in a module: ``layers.0.weight``."""
    return name.isprintable() and all(part and part[:2] != "__" for part in name.split("."))


def _number(value: Json) -> float:
    """Return a number in double precision: powers of integers have no end."""
    if type(value) not in (int, float):
        raise BundleError(f"expected a number, got {value!r:.80}.")
    return float(value)


def _index(value: Json, count: int) -> int:
    if type(value) is not int or not 0 <= value < count:
        raise BundleError(f"a reference to {value!r:.80}, but only {count} come before it.")
    return value
