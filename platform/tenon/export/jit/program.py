"""``Program``: one method of a trace: its graph, and the Python function that runs it.

The function calls one op after another on the current parameters and buffers of the module, so gradients flow
through it, and ``tenon.compile`` and ``capture`` record it like any function.
"""

from __future__ import annotations

import inspect
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, SimpleNamespace
from typing import Any, Self

from tenon import dtypes, fx
from tenon.engine.op import table
from tenon.errors import ArgumentError, DTypeError, ShapeError
from tenon.export.capture import Call
from tenon.export.captured import CapturedGraph
from tenon.export.jit.free_sizes import Axis, Sizes
from tenon.export.jit.recorder import DETACH
from tenon.export.python_graph import Writer, attribute_name
from tenon.export.signature import Result, TensorArgument, described
from tenon.export.symbolic.size_guards import check_guards
from tenon.fx.generated_source import make_function
from tenon.graph.graph import Node
from tenon.graph.ops import ViewSteps
from tenon.random.draws import Draw
from tenon.tensors.creation.create import wrap
from tenon.tensors.pytree import TreeSpec, tree_flatten, tree_unflatten
from tenon.tensors.tensor import Tensor

#: Where a module holds the tensors of a trace that are not its parameters or buffers.
STORE = "CONSTANTS"
#: Where a part of a trace holds the reason why it cannot be called alone.
REASON = "_not_alone"
#: How many combinations of shapes a program remembers as checked.
_REMEMBERED = 1024


class Program:
    """A graph with the function that runs it; immutable, and shared by copies of a module."""

    def __init__(
        self,
        graph: CapturedGraph,
        name: str,
        owner: str,
        paths: Mapping[str, str],
        arguments: Sequence[str],
        any_shape: bool,
        reasons: Mapping[Axis, str],
    ) -> None:
        #: The graph. Its states have the tensors of when it was traced; see ``bound``.
        self.graph = graph
        #: The method's name, and that of the class or function that was traced.
        self.name, self.owner = name, owner
        #: Label of a state of the graph, or "constant" and a number -> path at which the module has it.
        self.paths = paths
        #: The names of the arguments of the call.
        self.arguments = tuple(arguments)
        self.any_shape, self.reasons = any_shape, reasons
        self._known: set[tuple[object, ...]] = set()
        written = _TraceWriter(self)
        python_code = written.graph.python_code(root_module="self")
        lines = python_code.src.strip("\n").rstrip().split("\n")
        self.code = "\n".join(lines).strip() + "\n"
        self.function = self._made(lines, python_code.globals)

    def _made(self, lines: list[str], names: dict[str, Any]) -> FunctionType:  # values of any type
        """Return the function of ``lines``, which begins with a check of the arguments."""
        start = next(i for i, line in enumerate(lines) if line.startswith("def "))
        listed = ", ".join(self.arguments)
        if self.flat:
            key = "".join(f"{name}.raw.shape, {name}.raw.dtype, " for name in self.arguments)
            check = [
                "    try:",
                f"        __fits = ({key}) in __known",
                "    except AttributeError:",
                "        __fits = False",
                "    if not __fits:",
                f"        __check({listed})",
            ]
        else:
            check = [f"    __check({listed})"]
        source = "\n".join([*lines[: start + 1], *check, *lines[start + 1 :]]) + "\n"
        space = {**names, "__known": self._known, "__check": self.check}
        function = make_function(_with_short_names(source, space), space, {}, self)
        function.__name__ = self.name
        function.__qualname__ = f"{self.owner}.{self.name}"
        function.__doc__ = f"Run the trace of ``{self.owner}``."
        function.code, function.graph = self.code, self.graph  # type: ignore[attr-defined]
        return function

    @property
    def flat(self) -> bool:
        """Whether all arguments are tensors, none a container."""
        args, kwargs = self.graph.signature.in_spec.children_specs
        return all(spec.is_leaf() for spec in (*args.children_specs, *kwargs.children_specs))

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def check(self, *args: Any) -> None:  # of any type
        """Raise ArgumentError, ShapeError or DTypeError unless the trace holds for these arguments."""
        leaves, spec = tree_flatten(self.structured(args))
        own = self.graph.signature.in_spec
        if spec != own and without_names(spec) != without_names(own):
            raise ArgumentError(
                f"The trace of {self.owner} takes {described(own)}, but was given {described(spec)}. Pass "
                "arguments in the structure of the examples, or trace again."
            )
        for leaf, name in zip(leaves, self.graph.signature.inputs, strict=True):
            if not isinstance(leaf, Tensor):
                raise ArgumentError(
                    f"The trace of {self.owner} takes a tensor as {name!r}, but was given a "
                    f"{type(leaf).__name__}."
                )
        key = tuple(part for leaf in leaves for part in (leaf.raw.shape, leaf.raw.dtype))
        if key in self._known:
            return
        sizes: dict[str, tuple[int, str]] = {}
        for leaf, node in zip(leaves, self.graph.arguments, strict=True):
            self._check_dtype(leaf, node)
            if not self.any_shape:
                self._check_shape(leaf, node, sizes)
        check_guards(self.graph.size_guards, {symbol: size for symbol, (size, _) in sizes.items()})
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known.add(key)

    def structured(self, args: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:  # of any type
        """Return arguments in the order of ``arguments`` as those of the traced call."""
        positional, named = self.graph.signature.in_spec.children_specs
        count = len(positional.children_specs)
        if count:
            return tuple(args[:count]), dict(zip(self.arguments[count:], args[count:], strict=True))
        given = dict(zip(self.arguments, args, strict=True))
        return (), {name: given[attribute_name(name)] for name in (named.context[0] if named.context else ())}

    def _check_dtype(self, leaf: Tensor, node: Node) -> None:
        dtype, own = leaf.dtype, dtypes.FROM_NUMPY[node.avals[0].dtype]
        if dtype is own or (dtype.is_floating_point and own.is_floating_point):
            return
        raise DTypeError(
            f"The trace of {self.owner} holds for {node.label!r} of dtype {own}, but was given {dtype}. "
            "Convert the argument, or trace with an example of that dtype."
        )

    def _check_shape(self, leaf: Tensor, node: Node, sizes: dict[str, tuple[int, str]]) -> None:
        name, shape, own = node.label, tuple(leaf.raw.shape), node.avals[0].shape
        axes = self.graph.dynamic.get(name, {})
        traced = self.graph.with_sizes(node).avals[0].shape
        if len(shape) != len(own):
            raise ShapeError(
                f"The trace of {self.owner} holds for {name!r} of shape {list(traced)}, but was given "
                f"{list(shape)}. Trace with an example of that shape."
            )
        for axis, (given, size) in enumerate(zip(shape, own, strict=True)):
            symbol = axes.get(axis)
            if symbol is None and given != size:
                why = self.reasons.get((name, axis), "")
                raise ShapeError(
                    f"The trace of {self.owner} holds for {name!r} of shape {list(traced)}, but was given "
                    f"{list(shape)}: dimension {axis} is fixed{f' ({why})' if why else ''}. Trace with an "
                    "example of that shape, or call the Python function."
                )
            if symbol is None:
                continue
            first, place = sizes.setdefault(symbol, (given, f"dimension {axis} of {name!r}"))
            if first != given:
                raise ShapeError(
                    f"The trace of {self.owner} holds where {place} and dimension {axis} of {name!r} are the "
                    f"same size, but was given {first} and {given}."
                )


def without_names(spec: TreeSpec) -> TreeSpec:
    """Return ``spec`` with tuples in place of named tuples, whose classes files do not have."""
    if spec.is_leaf():
        return spec
    children = tuple(map(without_names, spec.children_specs))
    kind, context = (tuple, None) if spec.type == "namedtuple" else (spec.type, spec.context)
    return TreeSpec(kind, context, children)


def _with_short_names(source: str, space: dict[str, Any]) -> str:  # names with values of any type
    """Return ``source`` with functions of tenon as global names, which takes no time to look up."""

    def short(match: re.Match[str]) -> str:
        path = match[1]
        value: Any = space["tenon"]  # then what is at each name of the path
        for name in path.split(".")[1:]:
            value = getattr(value, name)
        known = f"__{path.replace('.', '_')}"
        space[known] = value
        return f"{known}("

    return re.sub(r"(?<![\w.'\"])(tenon(?:\.\w+)+)\(", short, source)


def placed(x: Tensor, value: Tensor, steps: ViewSteps) -> Tensor:
    """Return a copy of ``x`` with ``value`` in place of the view that ``steps`` derive from it."""
    result = x.clone()
    region = result
    for name, attrs in steps:
        region = table[name](region, **dict(attrs))
    region.copy_(value)
    return result


class _TraceWriter(Writer):
    """Writes a graph as a function of the arguments of the traced call."""

    def __init__(self, program: Program) -> None:
        super().__init__(program.graph, lifted=False, layers=None)
        self.program = program
        self.graph._codegen._func_name = "forward"
        used = {ref for node in self.source.nodes for ref in node.refs}
        self.used = used | set(self.source.outputs) | {w.value for w in self.source.writes}
        self._arguments()
        self._states()
        for node in self.source.calls:
            self._call(self.source.with_sizes(node), node)
        for write in self.source.writes:
            value = self.graph.call_method("detach", (self.values[write.value],))
            target = self.graph.get_attr(program.paths[write.target.label])
            self.graph.call_method("copy_", (target, value))
        self.graph.output(self._result())

    def _arguments(self) -> None:
        placeholders = [self.graph.placeholder(name) for name in self.program.arguments]
        args, kwargs = self.program.structured(placeholders)
        named = {node.label: node for node in self.source.arguments}
        leaves = iter(self.source.signature.arguments)

        def take(value: fx.Node, spec: TreeSpec) -> None:
            if spec.is_leaf():
                label = next(leaves)
                assert isinstance(label, TensorArgument)
                self.values[named[label.name].out()] = value
                return
            keys = spec.context[0] if isinstance(spec.type, type) and issubclass(spec.type, dict) else None
            for index, child in enumerate(spec.children_specs):
                key = index if keys is None else keys[index]
                take(self.graph.call_function(operator.getitem, (value, key)), child)

        in_args, in_kwargs = self.source.signature.in_spec.children_specs
        for value, spec in zip(args, in_args.children_specs, strict=True):
            take(value, spec)
        for value, spec in zip(kwargs.values(), in_kwargs.children_specs, strict=True):
            take(value, spec)

    def _states(self) -> None:
        constants = 0
        for node in self.source.nodes:
            if node.kind == "constant":
                self.values[node.out()] = self.graph.get_attr(self.program.paths[f"constant {constants}"])
                constants += 1
            elif node.kind == "input" and node.label in self.source.signature.states:
                self.values[node.out()] = self.graph.get_attr(self.program.paths[node.label])

    def _call(self, shown: Node, node: Node) -> None:
        if node.phase == DETACH:
            self.values[node.out()] = self.graph.call_method("detach", (self.values[node.args[0]],))
            return
        args = tuple(self._argument(a) for a in shown.args)
        plain = {name: value for name, value in shown.attrs.items() if not isinstance(value, Draw)}
        attrs = {name: self._argument(value) for name, value in plain.items()}
        if self.program.any_shape and attrs.get("axes") is not None:  # reductions over all axes only
            rank = self.graph.call_method("dim", args[:1])
            attrs["axes"] = self.graph.call_function(tuple, (self.graph.call_function(range, (rank,)),))
        if node.name == "put_view":
            call = self.graph.call_function(placed, args, attrs)
        elif node.name == "host_draw":
            path = self.program.paths[f"draw {self.source.calls.index(node)}"]
            make = self._draw(shown.attrs["make"], self.graph.get_attr(path))
            call = self.graph.call_function(node.op, args, {"make": make})
        else:
            call = self.graph.call_function(node.op, args, attrs)
        if node.op.outputs == 1:
            self.values[node.out()] = call
            return
        for index in range(len(node.avals)):
            if node.out(index) in self.used:
                self.values[node.out(index)] = self.graph.call_function(operator.getitem, (call, index))

    def _symbol(self, name: str) -> fx.Node:
        if name not in self.symbols:
            for node in self.source.arguments:
                for axis, symbol in self.source.dynamic.get(node.label, {}).items():
                    if symbol == name:
                        sized = self.graph.call_method("size", (self.values[node.out()], axis))
                        self.symbols[name] = sized
                        return sized
        return self.symbols[name]

    def _result(self) -> Any:  # a nest of nodes
        signature = self.source.signature
        leaves = [
            self.values[self.source.outputs[each.index]] if isinstance(each, Result) else each
            for each in signature.returned
        ]
        return tree_unflatten(leaves, signature.out_spec)


def bound(program: Program, read: Callable[[str], Any]) -> CapturedGraph:  # a tensor at a path
    """Return the graph of ``program`` with the present tensors that ``read`` finds at their paths."""
    graph = program.graph.copy()
    constants = 0
    for node in graph.nodes:
        if node.kind == "constant":
            node.value = read(program.paths[f"constant {constants}"]).detach().cpu().raw
            constants += 1
        elif node.kind == "input" and node.label in graph.signature.states:
            node.value = read(program.paths[node.label])
    return graph


def argument_names(function: object, call: Call) -> list[str]:
    """Return names for the arguments of a call, in the order in which a trace of ``function`` takes them."""
    args, kwargs = call
    try:
        parameters = list(inspect.signature(function).parameters.values())  # type: ignore[arg-type]
    except (TypeError, ValueError):  # a function that Python has no signature of
        parameters = []
    order = {parameter.name: position for position, parameter in enumerate(parameters)}
    names = [f"argument_{i}" for i in range(len(args))]
    for position, parameter in enumerate(parameters[: len(args)]):
        if parameter.kind is parameter.VAR_POSITIONAL:
            names[position:] = [f"{parameter.name}_{i}" for i in range(len(args) - position)]
            break
        names[position] = parameter.name
    given = list(kwargs) if args else sorted(kwargs, key=lambda name: order.get(name, len(order)))
    return ["self_" if name == "self" else attribute_name(name) for name in (*names, *given)]


def program_of(
    sizes: Sizes,
    *,
    name: str,
    owner: str,
    arguments: Sequence[str],
    paths: Mapping[int, str],
    stored: SimpleNamespace,
) -> Program:
    """Return the program of a graph; tensors that are not at one of ``paths`` go to ``stored``."""
    graph, paths_by_label = sizes.graph, {}
    constants = 0
    for node in graph.nodes:
        if node.kind == "constant":
            paths_by_label[f"constant {constants}"] = store(stored, "c", wrap(node.value, device="cpu"))
            constants += 1
        elif node.kind == "input" and node.label in graph.signature.states:
            paths_by_label[node.label] = paths.get(id(node.value.raw)) or store(stored, "t", node.value)
    for number, node in enumerate(graph.calls):
        if node.name == "host_draw":
            paths_by_label[f"draw {number}"] = store(stored, "draw", node.attrs["make"])
    return Program(graph, name, owner, paths_by_label, arguments, sizes.any_shape, sizes.reasons)


def store(stored: SimpleNamespace, prefix: str, value: object) -> str:
    """Keep ``value`` in ``stored``, unless it is there; return its path."""
    for name, known in vars(stored).items():
        if known is value:
            return f"{STORE}.{name}"
    name = f"{prefix}{sum(each.startswith(prefix) for each in vars(stored))}"
    setattr(stored, name, value)
    return f"{STORE}.{name}"
