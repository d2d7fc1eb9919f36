"""``Node``: one operation of a traced program, its arguments, and the users of its result.

``op`` determines what ``target`` is: ``placeholder`` (an argument's name), ``get_attr`` (an attribute's
path), ``call_function`` (a function), ``call_method`` (a method's name), ``call_module`` (a module's path),
``output``. Setting ``args`` or ``kwargs`` updates ``users`` of the nodes in them. Next: ``graph.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from tenon.fx.arguments import aggregate, format_arg
from tenon.fx.immutable_collections import immutable_dict, immutable_list
from tenon.fx.names import format_target, qualified_name, type_name
from tenon.fx.operator_schemas import ArgsKwargsPair, normalize_function, normalize_module
from tenon.fx.side_effects import has_side_effect, is_impure, side_effectful_functions

if TYPE_CHECKING:
    from tenon.fx.graph import Graph
    from tenon.nn.module import Module

__all__ = ["Argument", "Node", "Target", "has_side_effect", "map_aggregate", "map_arg"]

#: What a node calls or reads: a function, or the name of an argument, attribute, method or module.
Target: TypeAlias = Callable[..., Any] | str
#: A node, a plain value, or tuples, lists, dictionaries and slices of them.
Argument: TypeAlias = Any  # nested
BaseArgumentTypes: TypeAlias = Any  # the plain values
ArgumentT = TypeVar("ArgumentT", bound=Any)  # an Argument

_legal_ops = ("placeholder", "call_method", "call_module", "call_function", "get_attr", "output", "root")
_get_qualified_name = qualified_name
_type_repr = type_name
_side_effectful_functions = side_effectful_functions


class Node:
    """One operation of a graph. Create nodes by methods of a graph: ``graph.call_function(tenon.relu,
    (x,))``."""

    def __init__(
        self,
        graph: Graph,
        name: str,
        op: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        return_type: Any | None = None,  # a type, or what an annotation can be
    ) -> None:
        if op not in _legal_ops:
            raise AssertionError(f"a node's op is one of {', '.join(_legal_ops)}; not {op!r}")
        if op == "call_function" and not callable(target):
            raise ValueError(
                f"Node [graph = {graph}, name = {name!r}] target {target!r} has to be a function"
            )
        if op != "call_function" and not isinstance(target, str):
            raise ValueError(f"Node [graph = {graph}, name = {name!r}] target {target!r} has to be a str")
        self.graph = graph
        self.name = name
        self.op = op
        self.target = target
        self.type = return_type
        #: The nodes in the arguments, and the nodes that use this one, as the keys of ordered dictionaries.
        self._input_nodes: dict[Node, None] = {}
        self.users: dict[Node, None] = {}
        #: Metadata that passes attach to the node, such as ``stack_trace`` and ``nn_module_stack``.
        self.meta: dict[str, Any] = {}  # of any type
        self._repr_fn: Callable[[Node], str] | None = None
        self._sort_key: Any = ()  # a tuple of integers that orders the nodes of a graph
        self._prev: Node = self
        self._next: Node = self
        self._erased = False
        self._set_arguments(args, kwargs)

    # Order.

    @property
    def next(self) -> Node:
        """The node after this one."""
        return self._next

    @property
    def prev(self) -> Node:
        """The node before this one."""
        return self._prev

    def prepend(self, x: Node) -> None:
        """Move ``x`` to just before this node."""
        if x.graph is not self.graph:
            raise AssertionError(f"cannot move {x} before {self}: they are nodes of different graphs.")
        if x is self:
            return
        x._remove_from_list()
        before = self._prev
        before._next, x._prev = x, before
        x._next, self._prev = self, x
        x._sort_key = _key_between(before._sort_key, self._sort_key)

    def append(self, x: Node) -> None:
        """Move ``x`` to just after this node."""
        self._next.prepend(x)

    def _remove_from_list(self) -> None:
        before, after = self._prev, self._next
        before._next, after._prev = after, before
        self._prev = self._next = self

    def __lt__(self, other: Node) -> bool:
        return bool(self._sort_key < other._sort_key)

    def __gt__(self, other: Node) -> bool:
        return bool(self._sort_key > other._sort_key)

    def __le__(self, other: Node) -> bool:
        return self is other or self < other

    def __ge__(self, other: Node) -> bool:
        return self is other or self > other

    # Arguments.

    @property
    def args(self) -> tuple[Argument, ...]:
        """The positional arguments; assign a new tuple to change them."""
        return self._args

    @args.setter
    def args(self, a: tuple[Argument, ...]) -> None:
        self._set_arguments(tuple(a), self._kwargs)

    @property
    def kwargs(self) -> dict[str, Argument]:
        """The keyword arguments; assign a new dictionary to change them."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, k: dict[str, Argument]) -> None:
        self._set_arguments(self._args, k)

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes in the arguments, each once."""
        return list(self._input_nodes)

    def update_arg(self, idx: int, arg: Argument) -> None:
        """Set the positional argument ``idx``."""
        args = list(self._args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Argument) -> None:
        """Insert a positional argument before the one at ``idx``."""
        if not 0 <= idx <= len(self._args):
            raise AssertionError(f"insert_arg index must be between 0 and {len(self._args)}; got {idx}")
        self.args = (*self._args[:idx], arg, *self._args[idx:])

    def update_kwarg(self, key: str, arg: Argument) -> None:
        """Set the keyword argument ``key``."""
        self.kwargs = {**self._kwargs, key: arg}

    def _set_arguments(self, args: tuple[Argument, ...], kwargs: dict[str, Argument]) -> None:
        for old in self._input_nodes:
            old.users.pop(self, None)
        self._input_nodes = {}

        def used(leaf: Argument) -> Argument:
            if isinstance(leaf, Node):
                self._input_nodes.setdefault(leaf)
                leaf.users.setdefault(self)
            return leaf

        self._args: tuple[Argument, ...] = aggregate(args, used)
        self._kwargs: dict[str, Argument] = aggregate(dict(kwargs), used)

    def replace_all_uses_with(
        self,
        replace_with: Node,
        delete_user_cb: Callable[[Node], bool] = lambda user: True,
        *,
        propagate_meta: bool = False,
    ) -> list[Node]:
        """Use ``replace_with`` wherever this node is used; return the nodes that used it.

        ``delete_user_cb`` returns whether to change a user. ``propagate_meta`` copies
        ``meta`` to the replacement, whose own must be empty.
        """
        if propagate_meta:
            if replace_with.meta:
                raise AssertionError(
                    f"propagate_meta: {replace_with} has meta of its own: {list(replace_with.meta)}. Copy"
                    " what you need."
                )
            replace_with.meta.update(self.meta)
        users = list(self.users)
        hooks = self.graph._replace_hooks()
        for user in users:
            if not delete_user_cb(user):
                continue
            for hook in hooks:
                hook(old=self, new=replace_with.name, user=user)
            user.replace_input_with(self, replace_with)
        return users

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Use ``new_input`` for every ``old_input`` among the arguments."""

        def replaced(leaf: Argument) -> Argument:
            return new_input if leaf is old_input else leaf

        self._set_arguments(aggregate(self._args, replaced), aggregate(self._kwargs, replaced))

    def normalized_arguments(
        self,
        root: Module,
        arg_types: tuple[Any, ...] | None = None,  # types and annotations
        kwarg_types: dict[str, Any] | None = None,  # the same
        normalize_to_only_use_kwargs: bool = False,
    ) -> ArgsKwargsPair | None:
        """Return the arguments in the order of the function's signature; None if the signature is unknown."""
        if self.op == "call_function":
            assert callable(self.target)
            return normalize_function(
                self.target, self.args, self.kwargs, arg_types, kwarg_types, normalize_to_only_use_kwargs
            )
        if self.op == "call_module":
            assert isinstance(self.target, str)
            return normalize_module(root, self.target, self.args, self.kwargs, normalize_to_only_use_kwargs)
        return None

    # Metadata.

    @property
    def stack_trace(self) -> str | None:
        """The stack of the program when it created this node, if the tracer recorded it."""
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether the node has side effects, so that it stays without users.

        ``impure_random``: random functions count, as they advance the generator.
        """
        return is_impure(self, impure_random)

    def _rename(self, candidate: str) -> None:
        """Give the node an unused name derived from ``candidate``."""
        if candidate == self.name:
            return
        self.graph._graph_namespace.release(self)
        self.name = self.graph._graph_namespace.create_name(candidate, self)

    def __repr__(self) -> str:
        return self._repr_fn(self) if self._repr_fn else self.name

    def _pretty_print_target(self, target: object) -> str:
        return format_target(target)

    def format_node(
        self,
        placeholder_names: list[str] | None = None,
        maybe_return_typename: list[str] | None = None,
        *,
        include_tensor_metadata: bool = False,
    ) -> str | None:
        """Return the line of this node in a printed graph.

        With ``placeholder_names`` and ``maybe_return_typename``, the name of an argument and the result's
        type are appended there instead, for the head of the graph.
        """
        types = "" if self.type is None else f"{type_name(self.type)} "
        head = f"%{self.name} : {types}[num_users={len(self.users)}] = {self.op}[target="
        if self.op == "placeholder":
            if placeholder_names is not None:
                kind = "" if self.type is None else f" : {type_name(self.type)}"
                placeholder_names.append(f"{self.target}{kind}")
                return None
            default = f"(default={self.args[0]})" if self.args else ""
            return f"{head}{self.target}]{default}"
        if self.op == "get_attr":
            return f"{head}{format_target(self.target)}]"
        if self.op == "output":
            if self.type is not None and maybe_return_typename is not None:
                maybe_return_typename[0] = f" -> {type_name(self.type)}"
            return f"return {self.args[0]}"
        arguments = f"(args = {format_arg(self.args)}, kwargs = {format_arg(self.kwargs)})"
        metadata = self.meta.get("val", self.meta.get("tensor_meta")) if include_tensor_metadata else None
        noted = f"  # {metadata}" if metadata is not None else ""
        return f"{head}{format_target(self.target)}]{arguments}{noted}"

    def __reduce__(self) -> tuple[object, ...]:
        return _node_at, (self.graph, list(self.graph.nodes).index(self))


def _node_at(graph: Graph, index: int) -> Node:
    """Return the node of ``graph`` at a position, as which a node is pickled."""
    return list(graph.nodes)[index]


def _key_between(low: tuple[int, ...], high: tuple[int, ...]) -> tuple[int, ...]:
    """Return a key that sorts after ``low`` and before ``high``; an empty ``high`` is the end of the list."""
    if not high:
        return (low[0] + 1,) if low else (0,)
    if not low:
        return (high[0] - 1,)
    shared = 0
    while shared < min(len(low), len(high)) and low[shared] == high[shared]:
        shared += 1
    if shared == len(low):  # high goes on where low ends
        return (*low, high[shared] - 1)
    if shared < len(high) and high[shared] - low[shared] > 1:
        return (*low[:shared], low[shared] + 1)
    return (*low[: shared + 1], low[shared + 1] + 1) if len(low) > shared + 1 else (*low, 0)


def map_aggregate(a: Argument, fn: Callable[[Argument], Argument]) -> Argument:
    """Return ``a`` with ``fn`` applied to its leaves: values in tuples, lists, dictionaries and slices."""
    return aggregate(a, fn)


def map_arg(a: Argument, fn: Callable[[Node], Argument]) -> Argument:
    """Return ``a`` with ``fn`` applied to the nodes in it."""
    if not callable(fn):
        raise AssertionError(f"map_arg(a, fn): fn is not a function but {fn!r}")
    return aggregate(a, lambda leaf: fn(leaf) if isinstance(leaf, Node) else leaf)


def nodes_in(a: Argument) -> Iterable[Node]:
    """Return the nodes in an argument, in order."""
    nodes: list[Node] = []

    def note(node: Node) -> Node:
        nodes.append(node)
        return node

    map_arg(a, note)
    return nodes


def _format_arg(arg: Argument, max_list_len: float = float("inf")) -> str:
    """Return the text of an argument: nodes with a percent sign, long lists truncated."""
    return format_arg(arg, max_list_len)


__all__ += ["BaseArgumentTypes", "immutable_dict", "immutable_list"]
