"""Write a graph as a Python function: ``CodeGen``, or ``PyTreeCodeGen`` where arguments are containers.

A subclass changes how the function is defined (``gen_fn_def``), what it returns (``generate_output``), and
what an interpreter does instead (``process_inputs``, ``process_outputs``). The statements are in
``statements.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tenon.fx import _pytree as fx_pytree
from tenon.fx.statements import Line, Statements
from tenon.tensors import pytree

if TYPE_CHECKING:
    from tenon.fx.graph import Graph
    from tenon.fx.names import Namespace
    from tenon.fx.node import Argument, Node

#: Transforms the lines of a function's body.
BodyTransformer: TypeAlias = Callable[[list[str]], list[str]]


@dataclass
class PythonCode:
    """The source of a function, the values of its global names, and the node of each line."""

    src: str
    globals: dict[str, Any]  # of any type
    #: Line of the body -> index of its node in the graph.
    _lineno_map: dict[int, int | None] | None = None
    #: Number of lines before the body.
    _prologue_start: int = 0


@dataclass(frozen=True)
class Style:
    """The optional parts of generated code: comments with sources, strides and devices, and colors."""

    verbose: bool = False
    include_stride: bool = False
    include_device: bool = False
    colored: bool = False


class CodeGen:
    """Writes graphs as Python functions."""

    def __init__(self) -> None:
        self._body_transformer: BodyTransformer | None = None
        self._func_name: str = "forward"

    def gen_fn_def(
        self, free_vars: list[str], maybe_return_annotation: str, *, expanded_def: bool = False
    ) -> str:
        """Return the line with ``def``: ``free_vars`` are the arguments with annotations and defaults."""
        arguments = free_vars if free_vars and free_vars[0] == "self" else ["self", *free_vars]
        if not expanded_def:
            return f"def {self._func_name}({', '.join(arguments)}){maybe_return_annotation}:"
        listed = "".join(f"    {argument},\n" for argument in arguments)
        return f"def {self._func_name}(\n{listed}){maybe_return_annotation}:"

    def generate_output(self, output_args: Argument) -> str:
        """Return the statement that returns ``output_args``."""
        return f"return {output_args!r}"

    def process_inputs(self, *args: Any) -> Any:  # of any types
        """Return the values of the placeholders for arguments of the generated function."""
        return args

    def process_outputs(self, outputs: Any) -> Any:  # of any type
        """Convert the value of the output node to the result of the generated function."""
        return outputs

    def additional_globals(self) -> list[tuple[str, Any]]:  # of any type
        """Return names and values that the generated code needs beside those of the nodes."""
        return []

    def _gen_python_code(
        self,
        nodes: Iterable[Node],
        root_module: str,
        namespace: Namespace,
        *,
        expanded_def: bool = False,
        **style: bool,
    ) -> PythonCode:
        writer = Statements(self, root_module, namespace, Style(**style))
        for name, value in self.additional_globals():
            writer.add_global(name, value)
        body = writer.write_under_new_names(list(nodes))
        if self._body_transformer is not None:
            body = self._body_transformer(body)
        options: dict[str, Any] = {"expanded_def": True} if expanded_def else {}  # older overrides lack it
        definition = self.gen_fn_def(writer.arguments, writer.returned, **options)
        wraps = "\n".join(f'{writer.wrap_name}("{name}")' for name in writer.wrapped)
        text, line_nodes = _indented(body)
        source = f"\n{wraps}\n\n{definition}\n{text}    "
        return PythonCode(source, writer.globals, line_nodes, source.count("\n") - text.count("\n"))


def _indented(body: Sequence[str]) -> tuple[str, dict[int, int | None]]:
    """Return the body with every line indented, and which node each line comes from."""
    line_nodes: dict[int, int | None] = {}
    count = 1
    index: int | None = None
    for piece in body:
        index = piece.index_of_node if isinstance(piece, Line) else index
        lines = piece.count("\n")
        if isinstance(piece, Line):
            line_nodes.update(dict.fromkeys(range(count, count + max(lines, 1)), index))
        count += lines
    text = "".join(body)
    indented = "".join(f"    {line}\n" for line in text.removesuffix("\n").split("\n"))
    return indented, line_nodes


class PyTreeInfo(NamedTuple):
    """How arguments and results of a function are nested."""

    orig_args: list[str]
    in_spec: pytree.TreeSpec
    out_spec: pytree.TreeSpec | None


class PyTreeCodeGen(CodeGen):
    """Writes a function that flattens its arguments by a spec, and nests its result by another."""

    def __init__(self, pytree_info: PyTreeInfo) -> None:
        super().__init__()
        self.pytree_info = pytree_info

    def gen_fn_def(
        self, free_vars: list[str], maybe_return_annotation: str, *, expanded_def: bool = False
    ) -> str:
        """Return the definition with the original arguments, and the line that flattens them."""
        arguments = list(self.pytree_info.orig_args)
        names = [text.split("=")[0].split(":")[0].strip() for text in free_vars]
        whole = dict(zip(names, free_vars, strict=True))  # with annotations and defaults
        texts = [whole.get(argument, argument) for argument in arguments]
        definition = super().gen_fn_def(texts, maybe_return_annotation, expanded_def=expanded_def)
        if names:
            taken = f"fx_pytree.tree_flatten_spec([{', '.join(arguments)}], self._in_spec)"
            definition += f"\n    {', '.join(names)}, = {taken}"
        return definition

    def generate_output(self, output_args: Argument) -> str:
        """Return the statement that nests and returns the result."""
        if self.pytree_info.out_spec is None:
            return super().generate_output(output_args)
        return f"return pytree.tree_unflatten({output_args!r}, self._out_spec)"

    def process_inputs(self, *inputs: Any) -> Any:  # of any types
        """Return the leaves of the arguments."""
        return fx_pytree.tree_flatten_spec(list(inputs), self.pytree_info.in_spec)

    def process_outputs(self, out: Any) -> Any:  # of any type
        """Return the result nested as the function's was."""
        if self.pytree_info.out_spec is None:
            return out
        return pytree.tree_unflatten(
            out if isinstance(out, (list, tuple)) else [out], self.pytree_info.out_spec
        )


@dataclass
class Transforming:
    """A context manager that removes a transformer of generated code on exit."""

    graph: Graph
    before: BodyTransformer | None = field(default=None)

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc: object) -> None:
        self.graph._codegen._body_transformer = self.before


def on_generate_code(
    graph: Graph, make_transformer: Callable[[BodyTransformer | None], BodyTransformer]
) -> Transforming:
    """Register a transformer of the lines of ``graph``; see ``Graph.on_generate_code``."""
    codegen = graph._codegen
    before = codegen._body_transformer
    codegen._body_transformer = make_transformer(before)
    return Transforming(graph, before)
