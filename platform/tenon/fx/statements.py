"""The statements of generated code: one line per node, and the values of the global names."""

from __future__ import annotations

import builtins
import enum
import math
import sys
import types
import typing
from typing import TYPE_CHECKING, Any

from tenon.device import Device
from tenon.dtypes import dtype
from tenon.fx import _pytree as fx_pytree
from tenon.fx.names import Namespace, is_name, qualified_name, type_name
from tenon.fx.operators import INPLACE_FORMATS, OPERATOR_FORMATS
from tenon.fx.provenance import shape_comment, where_comment
from tenon.tensors import pytree
from tenon.tensors.index_parsing import INDEX

if TYPE_CHECKING:
    from tenon.fx.codegen import CodeGen, Style
    from tenon.fx.node import Argument, Node

#: Names that occur in reprs of values and in the generated code itself.
BUILT_IN_NAMES: dict[str, Any] = {  # values of any type
    "inf": math.inf,
    "nan": math.nan,
    "NoneType": type(None),
    "tenon": sys.modules["tenon"],
    "torch": sys.modules["tenon"],
    "device": Device,
    "fx_pytree": fx_pytree,
    "pytree": pytree,
}


class Line(str):
    """A line of generated code with the index of its node."""

    __slots__ = ("index_of_node",)
    index_of_node: int

    @classmethod
    def of(cls, text: str, index: int) -> Line:
        """Return ``text`` as the line of the node at ``index``."""
        line = cls(text)
        line.index_of_node = index
        return line


class Text:
    """An expression in generated code, as an object whose ``repr`` it is."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


class Statements:
    """Writes the nodes of one graph; ``globals``, ``arguments``, ``returned`` and ``wrapped`` are part of the
    result."""

    def __init__(self, codegen: CodeGen, root: str, namespace: Namespace, style: Style) -> None:
        self.codegen, self.root, self.names, self.style = codegen, root, namespace, style
        self.globals: dict[str, Any] = dict(BUILT_IN_NAMES)  # values of any type
        #: Arguments with their annotations and defaults.
        self.arguments: list[str] = []
        #: The annotation of the result.
        self.returned = ""
        #: Functions that must be wrapped again if the code is traced.
        self.wrapped: dict[str, None] = {}
        self.wrap_name = "tenon.fx._symbolic_trace.wrap"
        self._global_names: dict[tuple[str, int], str] = {}

    def add_global(self, hint: str, value: object) -> str:
        """Return the global name of ``value`` in the code, derived from ``hint``."""
        importable = all(map(str.isidentifier, hint.split(".")))  # a lambda is not
        if importable and hint.startswith("tenon.") and not isinstance(value, str):
            return hint
        name = hint.replace(".", "_")
        if getattr(builtins, name, self) is value or BUILT_IN_NAMES.get(name, self) is value:
            return name
        known = self._global_names.get((name, id(value)))
        if known is None:
            known = self._global_names[name, id(value)] = self.names.create_name(name, None)
            self.globals[known] = value
        return known

    def annotation(self, kind: Any) -> str:  # an annotation
        """Return the expression of an annotation."""
        if kind == ():
            return "()"
        origin = typing.get_origin(kind)
        arguments = getattr(kind, "__args__", ())
        plain = all(isinstance(a, (type, types.GenericAlias)) or typing.get_origin(a) for a in arguments)
        if origin in (list, tuple, dict, set, type, typing.Union) and plain and arguments:
            alias = (
                origin
                if isinstance(kind, types.GenericAlias)
                else getattr(typing, kind._name or "Union", origin)
            )
            if alias is typing.Optional:
                alias = typing.Union
            base = self.add_global(
                type_name(alias) if alias is origin else f"typing.{_typing_name(alias)}", alias
            )
            return f"{base}[{','.join(self.annotation(a) for a in arguments)}]"
        return self.add_global(type_name(kind), kind)

    def expression(self, value: Argument) -> Any:  # what has the expression as its repr
        """Return ``value`` with each leaf whose ``repr`` is not an expression replaced by a ``Text`` whose
        ``repr`` is."""
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            fields = ", ".join(repr(self.expression(item)) for item in value)
            kind = type(value)
            return Text(
                f"{self.add_global(qualified_name(kind), kind)}({fields}{',' if len(value) == 1 else ''})"
            )
        if isinstance(value, tuple):
            items = [self.expression(item) for item in value]
            return Text(f"({', '.join(map(repr, items))}{',' if len(items) == 1 else ''})")
        if isinstance(value, list):
            return [self.expression(item) for item in value]
        if isinstance(value, dict):
            return {key: self.expression(item) for key, item in value.items()}
        if isinstance(value, slice):
            return slice(*(self.expression(end) for end in (value.start, value.stop, value.step)))
        return self._leaf(value)

    def _leaf(self, value: Any) -> Any:  # of any type
        if isinstance(value, enum.Enum):
            kind = type(value)
            return Text(f"{self.add_global(qualified_name(kind), kind)}.{value.name}")
        if isinstance(value, dtype) or type(value).__name__ in ("layout", "memory_format"):
            return Text(repr(value).replace("torch.", "tenon.", 1))
        if isinstance(value, type) and value is not type(None):
            return Text(self.add_global(type_name(value), value))
        if value is INDEX:  # in graphs that were captured, where an index is by tensors
            return Text(self.add_global("INDEX", value))
        if isinstance(value, (types.FunctionType, types.BuiltinFunctionType)):
            return Text(self.add_global(qualified_name(value), value))
        if callable(value):  # an object, such as what draws random numbers
            return Text(self.add_global(type(value).__name__.lower(), value))
        return value

    def attribute(self, base: str, path: str) -> str:
        """Return the expression of an attribute at a path."""
        for name in path.split("."):
            if is_name(name):
                base = f"{base}.{name}"
            else:
                base = f'getattr({base}, "{name}")' if name.isalnum() else f"getattr({base}, {name!r})"
        return base

    def call(self, args: tuple[Argument, ...], kwargs: dict[str, Argument]) -> str:
        """Return the text of arguments between the parentheses of a call."""
        listed = [repr(self.expression(arg)) for arg in args]
        return ", ".join(listed + [f"{key} = {self.expression(arg)!r}" for key, arg in kwargs.items()])

    def write_under_new_names(self, nodes: list[Node]) -> list[str]:
        """Return the lines of the body, after renaming nodes that would hide each other or a global."""
        before = [node._repr_fn for node in nodes]
        for node in nodes:
            self.names.create_name(node.name, node)
            node._repr_fn = self._name_of
        try:
            return self.write(nodes)
        finally:
            for node, own in zip(nodes, before, strict=True):
                node._repr_fn = own

    def _name_of(self, node: Node) -> str:
        return self.names.create_name(node.name, node)

    def write(self, nodes: list[Node]) -> list[str]:
        """Return the lines of the body."""
        last_uses = _last_uses(nodes)
        lines: list[str] = []
        place: str | None = None
        for index, node in enumerate(nodes):
            statement = self.statement(node)
            if statement is None:
                continue
            freed = [] if node.op in ("placeholder", "output") else [*last_uses.get(node, [])]
            if not node.users and node.op not in ("placeholder", "output"):
                freed.append(node)
            ending = f";  {' = '.join([*map(repr, freed), 'None'])}" if freed else ""
            if self.style.verbose and node.op not in ("placeholder", "output"):
                comment = where_comment(node)
                if comment != place:
                    place = comment
                    text = f"\033[2m{comment}\033[0m" if self.style.colored else comment
                    lines.append(Line.of(f"\n{text}\n" if lines else f"{text}\n", index))
            lines.append(Line.of(f"{statement}{ending}\n", index))
        if not lines:
            lines.append("pass\n")
        return lines

    def _annotated(self, node: Node) -> str:
        """Return the name of a node, with its annotation, for the left side of ``=``."""
        if self.style.verbose:
            shape = shape_comment(node, self.style.include_stride, self.style.include_device)
            if shape:
                return f"{node!r}: {shape}"
        return repr(node) if node.type is None else f"{node!r} : {self.annotation(node.type)}"

    def statement(self, node: Node) -> str | None:
        """Return the statement of a node; None for a placeholder that is an argument of the same name."""
        if node.op == "placeholder":
            return self._placeholder(node)
        if node.op == "output":
            if node.type is not None:
                self.returned = f" -> {self.annotation(node.type)}"
            return self.codegen.generate_output(self.expression(node.args[0]))
        left = self._annotated(node)
        if node.op == "get_attr":
            return f"{left} = {self.attribute(self.root, str(node.target))}"
        if node.op == "call_module":
            return (
                f"{left} = {self.attribute(self.root, str(node.target))}({self.call(node.args, node.kwargs)})"
            )
        if node.op == "call_method":
            owner = self.attribute(repr(self.expression(node.args[0])), str(node.target))
            return f"{left} = {owner}({self.call(node.args[1:], node.kwargs)})"
        return self._function(node, left)

    def _placeholder(self, node: Node) -> str | None:
        target = str(node.target)
        kind = "" if node.type is None else f" : {self.annotation(node.type)}"
        shape = (
            shape_comment(node, self.style.include_stride, self.style.include_device)
            if self.style.verbose
            else ""
        )
        default = f" = {self.expression(node.args[0])!r}" if node.args else ""
        self.arguments.append(f"{target}{f': {shape}' if shape else kind}{default}")
        plain = target.replace("*", "")
        return None if plain == repr(node) else f"{node!r} = {plain}"

    def _function(self, node: Node, left: str) -> str:
        function: Any = node.target  # any function
        if getattr(function, "__module__", None) == "_operator":
            operands = [repr(self.expression(arg)) for arg in node.args]
            if function in OPERATOR_FORMATS:
                return f"{left} = {OPERATOR_FORMATS[function].format(*operands)}"
            if function in INPLACE_FORMATS:
                return f"{INPLACE_FORMATS[function].format(*operands)};  {left} = {operands[0]}"
        if function is getattr and len(node.args) == 2 and is_name(str(node.args[1])):
            return f"{left} = {self.attribute(repr(self.expression(node.args[0])), node.args[1])}"
        called = self.add_global(qualified_name(function), function)
        if node.meta.get("is_wrapped"):
            self.wrapped.setdefault(called)
        return f"{left} = {called}({self.call(node.args, node.kwargs)})"


def _typing_name(alias: Any) -> str:  # a special form of typing
    return str(getattr(alias, "_name", None) or getattr(alias, "__name__", "Any"))


def _last_uses(nodes: list[Node]) -> dict[Node, list[Node]]:
    """Return, for each node, the values whose last use it is."""
    seen: set[Node] = set()
    freed: dict[Node, list[Node]] = {}
    for node in reversed(nodes):
        for used in node.all_input_nodes:
            if used not in seen:
                seen.add(used)
                freed.setdefault(node, []).append(used)
    return freed
