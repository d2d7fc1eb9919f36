"""``Graph``: the nodes of a traced program, in the order in which they run.

>>> import tenon
>>> graph = Graph()
>>> x = graph.placeholder("x")
>>> y = graph.call_function(tenon.relu, (x,))
>>> _ = graph.output(y)
>>> print(graph)
graph():
    %x : [num_users=1] = placeholder[target=x]
    %relu : [num_users=1] = call_function[target=tenon.relu](args = (%x,), kwargs = {})
    return relu

New nodes are inserted at the insert point, at the end unless ``inserting_before`` or ``inserting_after``
move it. Next: ``codegen.py`` writes a graph as Python, ``graph_module.py`` makes a module of it.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tenon.fx import graph_checks
from tenon.fx.codegen import CodeGen, PythonCode, PyTreeCodeGen, PyTreeInfo, on_generate_code
from tenon.fx.flat_nodes import flat_nodes
from tenon.fx.insertion import InsertPoint, NodeList
from tenon.fx.names import Namespace, target_name
from tenon.fx.node import Argument, Node, Target, map_arg

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from tenon.nn.module import Module

__all__ = ["CodeGen", "Graph", "PythonCode"]

_PyTreeCodeGen, _PyTreeInfo = PyTreeCodeGen, PyTreeInfo
_Namespace = Namespace
#: Attributes of a graph that are pickled together with its nodes.
_PICKLED = ("_codegen", "_co_fields", "_tracer_cls", "_tracer_extras")


class Graph:
    """A program as a list of nodes; see the module's docstring."""

    def __init__(
        self,
        owning_module: Module | None = None,
        tracer_cls: type | None = None,
        tracer_extras: dict[str, Any] | None = None,  # keyword arguments of the tracer
    ) -> None:
        self._root = Node(self, "", "root", "", (), {})
        self._erase = self._root._remove_from_list
        self._insert: Callable[[Node], None] = self._root.prepend
        self._len = 0
        self._graph_namespace = Namespace()
        self._owning_module = owning_module
        self._tracer_cls = tracer_cls
        self._tracer_extras = tracer_extras
        self._codegen = CodeGen()
        #: Name, file and first line of the traced function, for tracebacks.
        self._co_fields: dict[str, Any] = {}  # attributes of a code object

    @property
    def owning_module(self) -> Module | None:
        """The GraphModule that has this graph."""
        return self._owning_module

    @owning_module.setter
    def owning_module(self, mod: Module | None) -> None:
        self._owning_module = mod

    @property
    def nodes(self) -> NodeList:
        """The nodes in order: iterable, also by ``reversed``, with a length. Nodes may be changed during
        iteration."""
        return NodeList(self)

    def output_node(self) -> Node:
        """The output node, which is the last one."""
        last = next(iter(reversed(self.nodes)), None)
        if last is None or last.op != "output":
            raise AssertionError(f"Expected output node, got op={last.op if last else None}")
        return last

    def find_nodes(self, *, op: str, target: Target | None = None, sort: bool = True) -> list[Node]:
        """The nodes of an ``op``, of one ``target`` if that is given, in order: ``sort`` is PyTorch's.

        ``call_function`` needs a target.
        """
        if op == "call_function" and target is None:
            raise AssertionError("target must not be None for call_function op")
        return [node for node in self.nodes if node.op == op and (target is None or node.target == target)]

    # Creating nodes.

    def create_node(
        self,
        op: str,
        target: Target,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        name: str | None = None,
        type_expr: Any | None = None,  # a type, or what an annotation can be
    ) -> Node:
        """Insert a node at the insert point; its name is derived from ``name``, by default from the
        target."""
        args = () if args is None else args
        kwargs = {} if kwargs is None else kwargs
        if not isinstance(args, tuple):
            raise AssertionError(f"args must be a tuple, not {type(args).__name__}")
        if not isinstance(kwargs, dict):
            raise AssertionError(f"kwargs must be a dict, not {type(kwargs).__name__}")
        candidate = name if name is not None else self._target_to_str(target)
        node = Node(self, "", op, target, args, kwargs, type_expr)
        node.name = self._graph_namespace.create_name(candidate, node)
        for hook in getattr(self._owning_module, "_create_node_hooks", ()):
            hook(node)
        self._insert(node)
        self._len += 1
        return node

    def placeholder(
        self,
        name: str,
        type_expr: Any | None = None,  # an annotation
        default_value: Any = inspect.Signature.empty,  # of any type
    ) -> Node:
        """Insert an argument; ``*name`` and ``**name`` collect the rest as in a function."""
        args = () if default_value is inspect.Signature.empty else (default_value,)
        return self.create_node("placeholder", name, args, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any | None = None) -> Node:  # an annotation
        """Insert a read of an attribute of the module, such as ``"layer.weight"``."""
        if self._owning_module is not None:
            graph_checks.warn_of_missing_attribute(self._owning_module, qualified_name)
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(
        self,
        module_name: str,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any | None = None,  # an annotation
    ) -> Node:
        """Insert a call of the submodule at the path ``module_name``."""
        if self._owning_module is not None:
            graph_checks.warn_of_missing_module(self._owning_module, module_name)
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(
        self,
        method_name: str,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any | None = None,  # an annotation
    ) -> Node:
        """Insert the call of a method of ``args[0]``."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(
        self,
        the_function: Callable[..., Any],  # any function
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any | None = None,  # an annotation
        name: str | None = None,
    ) -> Node:
        """Insert the call of a function."""
        return self.create_node("call_function", the_function, args, kwargs, name, type_expr)

    def output(self, result: Argument, type_expr: Any | None = None) -> Node:  # an annotation
        """Insert the return of ``result``."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Argument] = lambda node: node) -> Node:
        """Insert a copy of a node of another graph; ``arg_transform`` maps its inputs to nodes of this
        one."""
        args = map_arg(node.args, arg_transform)
        kwargs = map_arg(node.kwargs, arg_transform)
        copied = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        copied.meta = dict(node.meta)
        return copied

    def graph_copy(
        self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False
    ) -> Argument | tuple[Argument, Node] | None:
        """Insert copies of all nodes of ``g`` but the output; return the copy of the output's value.

        ``val_map`` maps nodes of ``g`` to nodes of this graph: nodes in it are not copied, and copies are
        added.
        """
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                value = map_arg(node.args[0], val_map.__getitem__)
                return (value, node) if return_output_node else value
            val_map[node] = self.node_copy(node, val_map.__getitem__)
        return None

    def erase_node(self, to_erase: Node) -> None:
        """Remove a node without users; RuntimeError if it has users or belongs to another graph."""
        if to_erase.users:
            raise RuntimeError(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in the graph:"
                f" {to_erase.users}!"
            )
        if to_erase.graph is not self:
            raise RuntimeError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            graph_checks.warn_of_second_erasure(to_erase)
            return
        for hook in getattr(self._owning_module, "_erase_node_hooks", ()):
            hook(to_erase)
        to_erase._remove_from_list()
        to_erase._erased = True
        self._len -= 1
        to_erase._set_arguments((), {})
        self._graph_namespace.release(to_erase)

    def inserting_before(self, n: Node | None = None) -> InsertPoint:
        """Insert before ``n`` (None: at the beginning) from now on, or within a ``with`` block."""
        if n is None:
            return self.inserting_after(self._root)
        if n.graph is not self:
            raise AssertionError(f"Node to insert before, {n}, is not in graph.")
        return InsertPoint(self, n.prepend)

    def inserting_after(self, n: Node | None = None) -> InsertPoint:
        """Insert after ``n`` (None: at the end) from now on, or within a ``with`` block."""
        if n is None:
            return self.inserting_before(self._root)
        if n.graph is not self:
            raise AssertionError(f"Node to insert after, {n}, is not in graph.")
        return InsertPoint(self, n.append)

    def _target_to_str(self, target: object) -> str:
        return target_name(target)

    def _replace_hooks(self) -> list[Callable[..., object]]:
        return list(getattr(self._owning_module, "_replace_hooks", ()))

    # Checks and clean-up.

    def lint(self) -> None:
        """Raise RuntimeError, AssertionError or ValueError if the graph is not well formed."""
        graph_checks.lint(self)

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Erase nodes without users and side effects; return whether there were any.

        ``is_impure_node`` returns True for nodes with side effects; by default ``node.is_impure()``.
        """
        self.lint()
        impure = is_impure_node if is_impure_node is not None else Node.is_impure
        dead = [node for node in reversed(self.nodes) if not node.users and not impure(node)]
        changed = bool(dead)
        while dead:
            for node in dead:
                self.erase_node(node)
            dead = [node for node in reversed(self.nodes) if not node.users and not impure(node)]
        return changed

    # Text and code.

    def __str__(self) -> str:
        lines = [node.format_node() for node in self.nodes]
        return "\n    ".join(["graph():", *(line for line in lines if line is not None)])

    def print_tabular(self) -> None:
        """Print a table of the nodes."""
        print(graph_checks.table(self))

    def python_code(
        self,
        root_module: str,
        *,
        verbose: bool = False,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
        expanded_def: bool = False,
    ) -> PythonCode:
        """Return the graph as a Python function; ``root_module`` is the name of the module in it, usually
        ``"self"``.

        ``verbose`` adds the source lines of nodes and the known shapes. Names of functions outside of
        tenon are in ``.globals``.
        """
        return self._codegen._gen_python_code(
            self.nodes,
            root_module,
            Namespace(),
            verbose=verbose,
            include_stride=include_stride,
            include_device=include_device,
            colored=colored,
            expanded_def=expanded_def,
        )

    def set_codegen(self, codegen: CodeGen) -> None:
        """Use ``codegen`` to generate this graph's code from now on."""
        self._codegen = codegen

    def on_generate_code(
        self,
        make_transformer: Callable[[Any], Callable[[list[str]], list[str]]],  # a transformer or None
    ) -> AbstractContextManager[None]:
        """Register a transformer of the lines of generated code; leaving the returned context removes it.

        ``make_transformer`` receives the present one or None, and returns a function from lines to lines.
        """
        return on_generate_code(self, make_transformer)

    def process_inputs(self, *args: Any) -> Any:  # of any types
        """Flatten arguments as the generated code does."""
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: Any) -> Any:  # of any type
        """Unflatten the result as the generated code does."""
        return self._codegen.process_outputs(out)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Graph:  # copies by id
        """Copy the graph and its nodes; other objects in their arguments are shared."""
        memo = {} if memo is None else memo
        copied = Graph(tracer_cls=self._tracer_cls, tracer_extras=self._tracer_extras)
        memo[id(self)] = copied
        copied._codegen = copy.deepcopy(self._codegen)
        copied._co_fields = dict(self._co_fields)
        nodes: dict[Node, Node] = {}
        for node in self.nodes:
            nodes[node] = copied.node_copy(node, nodes.__getitem__)
            nodes[node].name = node.name
            memo[id(node)] = nodes[node]
        return copied

    def __getstate__(self) -> dict[str, Any]:  # of any type
        """Return the pickled state: a flat list of nodes, whatever the depth of the program."""
        state = {key: value for key, value in vars(self).items() if key in _PICKLED}
        return state | {"nodes": flat_nodes(self.nodes)}

    def __setstate__(self, state: dict[str, Any]) -> None:  # of any type
        nodes = state.pop("nodes")
        self.__init__()  # type: ignore[misc]
        vars(self).update(state)
        inserted: list[Node] = []
        for flat in nodes:
            flat.insert_into(self, inserted)
