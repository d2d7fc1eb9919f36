"""Which variables, items of containers and loop variables refer to the tensor of a collective.

``site.py`` asks where a call may pass any of several tensors: in a loop, a comprehension, ``map``, an
``if`` expression, or a wrapper of these. The functions from ``passed_to`` on read the source of a call.
"""

from __future__ import annotations

import ast
from collections import OrderedDict, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from inspect import CO_OPTIMIZED, CO_VARARGS, CO_VARKEYWORDS
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType

from tenon.engine.op import Kind, Op, table
from tenon.tensors.tensor import Tensor

LARGEST = 512
"""Containers of more items are not searched for a tensor."""
ATTRIBUTES = 64
"""Objects of more attributes are not searched for a tensor."""
_LISTS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FIXED = (ModuleType, FunctionType, BuiltinFunctionType, type)
_COMPREHENSIONS = frozenset(("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"))
_MAPS = frozenset(("map", "filter", "starmap"))
_READING = _MAPS | {"list", "tuple", "reversed", "sorted", "iter", "zip", "enumerate", "next", "chain"}
"""Functions that return what they are given, or an item or attribute of it."""
_PACKING = frozenset(("cat", "concat", "stack", "hstack", "vstack", "tensor", "as_tensor", "float", "int"))
"""Functions whose result is their arguments in another form."""
_NUMBERS = frozenset(("norm", "max", "min", "item"))
"""Methods of tensors, beside reductions that are ops, whose result is a number of the data."""
_TAKING = frozenset(("pop", "popleft", "popitem"))
"""Methods that return another item each time."""
_GETTING = _TAKING | {"get", "setdefault", "__getitem__", "get_buffer", "get_parameter", "get_submodule"}
"""Methods that return the item of a key."""
_SEQUENCES = frozenset((list, tuple, deque))
_MAPPINGS = frozenset((dict, OrderedDict, defaultdict))
_PLAIN = frozenset((int, float, complex, bool, str, bytes, type(None), *_SEQUENCES, *_MAPPINGS))


class Nested(str):
    """The index of an item of an item: the text between the outermost brackets."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def search(
    variables: Iterable[tuple[str, object]],
    subject: object,
    loops: Collection[str],
    aliases: list[str],
    indices: list[tuple[str, int | str]],
) -> None:
    """Add those of ``variables`` that are ``subject``, except ``loops``, and small containers of it."""
    for name, value in variables:
        if value is subject:
            if name not in loops:
                aliases.append(name)
        else:
            indices += [(name, key) for key, item in _items(value) if item is subject]


def search_inside(
    variables: Iterable[tuple[str, object]], subject: object, indices: list[tuple[str, int | str]]
) -> None:
    """Add those of ``variables`` that are small containers of small containers of ``subject``."""
    for name, value in variables:
        for key, inner in _items(value):
            for index, item in _items(inner):
                if item is subject:
                    indices.append((name, Nested(f"{key!r}][{index!r}")))


def search_attributes(
    variables: Iterable[tuple[str, object]],
    subject: object,
    loops: Collection[str],
    aliases: list[str],
    indices: list[tuple[str, int | str]],
) -> None:
    """Add the attributes of objects in ``variables`` that are ``subject``, and small containers of it.

    Not of ``loops``, which are other objects each time.
    """
    for name, value in variables:
        if name in loops:
            continue
        for attribute, inner in _attributes(value):
            if inner is subject:
                aliases.append(f"{name}.{attribute}")
            else:
                indices += [(f"{name}.{attribute}", key) for key, item in _items(inner) if item is subject]


def _attributes(value: object) -> Iterable[tuple[str, object]]:
    """The attributes of a small object, without running code of its class."""
    if type(value) in _PLAIN or isinstance(value, (Tensor, *_FIXED)):
        return ()
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return ()
    return list(found.items()) if type(found) is dict and len(found) <= ATTRIBUTES else ()


def attribute_of(value: object, name: str) -> object:
    """The attribute ``name`` that ``_attributes`` would list, or None."""
    try:
        return object.__getattribute__(value, "__dict__").get(name)
    except AttributeError:
        return None


def _items(value: object) -> Iterable[tuple[int | str, object]]:
    """The items of a small container and their indices."""
    kind = type(value)
    if kind in _SEQUENCES or (issubclass(kind, tuple) and hasattr(kind, "_fields")):
        return enumerate(value) if len(value) <= LARGEST else ()  # type: ignore[arg-type]
    if kind in _MAPPINGS and len(value) <= LARGEST:  # type: ignore[arg-type]
        keyed = ((as_key(key), item) for key, item in list(value.items()))  # type: ignore[attr-defined]
        return ((key, item) for key, item in keyed if key is not None)
    return ()


def as_key(value: object) -> int | str | None:
    """``value`` as the index of an item: integers, texts and tuples of these; None for others."""
    if isinstance(value, int | str):
        return None if isinstance(value, bool) else value
    if type(value) is tuple and all(isinstance(part, int | str) for part in value):
        return Nested(value)
    return None


def searched(names: Iterable[str], values: Mapping[str, object]) -> tuple[str, ...]:
    """Those of ``names`` that may come to refer to a tensor: not modules, functions and classes."""
    return tuple(name for name in names if not isinstance(values.get(name), _FIXED))


def in_frame(
    code: CodeType, names: Collection[str], values: Mapping[str, object], others: Mapping[str, object]
) -> Iterable[tuple[str, object]]:
    """The variables of a frame of ``code``: those of a function, and ``names`` of its module."""
    found = [(name, others[name]) for name in names if name in others]
    if code.co_flags & CO_OPTIMIZED:
        return [*values.items(), *found] if found else values.items()
    return found


def is_comprehension(code: CodeType) -> bool:
    """Whether ``code`` is that of a comprehension or of a generator expression."""
    return code.co_name in _COMPREHENSIONS


def passed_to(
    inner: CodeType, wanted: Collection[str], closure: bool, expression: ast.expr
) -> list[ast.expr]:
    """What ``expression``, which calls ``inner``, passes as the parameters ``wanted``.

    With ``closure``, also what is called: it has the variables that ``inner`` takes from outside.
    """
    if isinstance(expression, _LISTS):
        return [generator.iter for generator in expression.generators]
    if isinstance(expression, ast.Attribute):
        return [expression.value]  # a property
    if not isinstance(expression, ast.Call):
        return []
    called = expression.func
    receiver = called.value if isinstance(called, ast.Attribute) else called
    if (
        isinstance(receiver, ast.Call)
        and isinstance(receiver.func, ast.Attribute)
        and _reduces(receiver.func)
    ):
        receiver = receiver.func.value  # ``t`` of ``t.sum().backward()``
    if is_comprehension(inner) or is_loop(expression) or inner.co_name in ("__enter__", "__exit__"):
        return [*expression.args]
    parameters = inner.co_varnames[: inner.co_argcount]
    given = len(expression.args) + len(expression.keywords)
    is_method = (
        not inner.co_qualname.rpartition(".")[0].endswith(("<locals>", ">")) and "." in inner.co_qualname
    )
    bound = is_method and isinstance(called, ast.Attribute) and given < len(parameters)
    first = 1 if bound or parameters[:1] in (("self",), ("cls",), ("ctx",)) else 0
    found = [receiver] if closure or (first and parameters[0] in wanted) else []
    positional, keywords = others_of(inner)
    for number, value in enumerate(expression.args):
        index = number + first
        if (parameters[index] if index < len(parameters) else positional) in wanted:
            found.append(value)
    known = inner.co_varnames[: inner.co_argcount + inner.co_kwonlyargcount]
    for each in expression.keywords:
        if each.arg is None or (each.arg if each.arg in known else keywords) in wanted:
            found.append(each.value)
    if any(isinstance(each, ast.Starred) for each in expression.args):
        return [*found, *expression.args]
    if found or not (expression.args or expression.keywords):
        return found or [receiver]  # a partial function
    # A partial function of other arguments, or a default value, if the function is a variable's.
    return [receiver, *expression.args] if wanted and isinstance(called, ast.Name) else []


def others_of(code: CodeType) -> tuple[str, str]:
    """The names of the parameters ``*args`` and ``**kwargs`` of ``code``; empty if there are none."""
    index = code.co_argcount + code.co_kwonlyargcount
    positional = code.co_varnames[index] if code.co_flags & CO_VARARGS else ""
    index += bool(positional)
    return positional, code.co_varnames[index] if code.co_flags & CO_VARKEYWORDS else ""


def parameters_of(code: CodeType) -> Collection[str]:
    """All parameters of ``code``."""
    return {*code.co_varnames[: code.co_argcount + code.co_kwonlyargcount], *filter(None, others_of(code))}


def variables_in(expressions: Iterable[ast.expr]) -> set[str]:
    """The variables that identify the value of ``expressions``."""
    return {node.id for part in expressions for node in parts(part) if isinstance(node, ast.Name)}


def parts(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that identify the value of an expression: not what functions in it compute with."""
    yield node
    children: Iterable[ast.AST] = ast.iter_child_nodes(node)
    if isinstance(node, ast.Call) and not is_named(node.func, _READING | _PACKING):
        children = [*node.args[:1], node.func] if is_named(node.func, ("getattr",)) else [node.func]
        if _reduces(node.func):
            children = []
    elif isinstance(node, ast.IfExp):
        children = [node.body, node.orelse]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        children = []
    elif isinstance(node, ast.Subscript):
        children = [node.value]
    own = _own_variables(node) if isinstance(node, _LISTS) else ()
    for child in children:
        yield from (each for each in parts(child) if getattr(each, "id", "") not in own)


def _own_variables(comprehension: ast.AST) -> Collection[str]:
    """The variables of a comprehension, which are in another frame."""
    targets = [each.target for each in ast.walk(comprehension) if isinstance(each, ast.comprehension)]
    return {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}


def _reduces(function: ast.expr) -> bool:
    """Whether ``function`` is a method that reduces a tensor: the result is of this rank's data."""
    if not isinstance(function, ast.Attribute):
        return False
    op = getattr(table, function.attr, None)
    kind = op.kind if isinstance(op, Op) else None
    return kind in (Kind.REDUCE, Kind.CONTRACT) or function.attr in _NUMBERS


def keys_of(node: ast.AST) -> Sequence[ast.expr]:
    """What ``node`` chooses an item or an attribute by."""
    if isinstance(node, ast.Subscript):
        return [node.slice]
    if isinstance(node, ast.Call) and is_named(node.func, ("getattr",)):
        return node.args[1:2]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and is_named(node.func, _GETTING):
        return node.args[:1]
    return []


def containers_in(expression: ast.expr) -> Sequence[ast.expr]:
    """What ``expression`` takes items from, itself an item: the list of ``order[n]`` and ``todo.pop()``."""
    found = [node.value for node in ast.walk(expression) if isinstance(node, ast.Subscript)]
    calls = [node.func for node in ast.walk(expression) if isinstance(node, ast.Call)]
    methods = (each for each in calls if isinstance(each, ast.Attribute) and each.attr in _GETTING)
    return [*found, *(each.value for each in methods)]


def is_result(expression: ast.expr) -> bool:
    """Whether ``expression`` is what a function computes from arguments."""
    if not isinstance(expression, ast.Call) or not expression.args:
        return False
    return not is_named(expression.func, _READING | _GETTING | _PACKING | {"getattr", "vars", "dict"})


def is_computed(expression: ast.expr) -> bool:
    """Whether a key is the result of arithmetic or of a function: each rank may compute its own."""
    for node in ast.walk(expression):
        if isinstance(node, ast.BinOp) and not _is_text(node):
            return True
        if isinstance(node, ast.Call) and not is_named(node.func, _READING | _GETTING | _FORMATTING):
            return True
    return False


_FORMATTING = frozenset(("str", "format", "join", "replace", "lower", "upper", "getattr"))


def _is_text(operation: ast.BinOp) -> bool:
    return any(
        isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
        for node in ast.walk(operation)
    )


def is_chosen(expression: ast.expr) -> bool:
    """Whether an assignment of ``expression`` may choose another existing value each time."""
    return any(isinstance(node, ast.IfExp | ast.BoolOp) or is_varying(node) for node in parts(expression))


def is_varying(node: ast.AST) -> bool:
    """Whether ``node`` is an item of a variable index, or one that is taken from a container."""
    if isinstance(node, ast.Subscript):
        return not isinstance(node.slice, ast.Constant | ast.Slice)
    return isinstance(node, ast.Call) and is_named(node.func, _GETTING)


def takes(expressions: Iterable[ast.expr]) -> bool:
    """Whether ``expressions`` take an item from a container, another one each time."""
    found = (node for part in expressions for node in parts(part) if isinstance(node, ast.Call))
    return any(is_named(node.func, _TAKING) for node in found)


def is_named(function: ast.expr, names: Collection[str]) -> bool:
    """Whether ``function`` is a variable or an attribute of one of ``names``."""
    return (function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")) in names


def is_choice(expression: ast.expr) -> bool:
    """Whether ``expression`` may be any of several existing tensors: an item, a conditional or a list."""
    return is_loop(expression) or any(
        isinstance(node, ast.IfExp | ast.BoolOp | ast.List | ast.Tuple) or is_varying(node)
        for node in parts(expression)
    )


def is_loop(expression: ast.expr) -> bool:
    """Whether ``expression`` is several tensors in turn: a comprehension, ``map``, or one list or another."""
    arms = (expression.body, expression.orelse) if isinstance(expression, ast.IfExp) else ()
    if arms and all(isinstance(arm, ast.List | ast.Tuple) for arm in arms):
        return True
    return any(
        isinstance(node, _LISTS) or (isinstance(node, ast.Call) and _maps(node.func))
        for node in parts(expression)
    )


def _maps(function: ast.expr) -> bool:
    """Whether ``function`` calls another one in turn; methods may have the same names."""
    module = function.value if isinstance(function, ast.Attribute) else None
    of_module = isinstance(module, ast.Name) and module.id in ("functools", "itertools")
    return is_named(function, _MAPS) or (of_module and is_named(function, ("reduce", "accumulate")))


def named(expression: ast.expr) -> bool:
    """Whether ``expression`` is a variable, an attribute or an item, whose text identifies the tensor."""
    return isinstance(expression, ast.Name | ast.Attribute | ast.Subscript)


def elements(expression: ast.expr | None, count: int) -> Sequence[ast.expr | None]:
    """The expressions of the ``count`` tensors of a list; None where the source does not list them."""
    listed = expression.elts if isinstance(expression, ast.List | ast.Tuple) else []
    starred = any(isinstance(each, ast.Starred) for each in listed)
    return listed if len(listed) == count and not starred else [None] * count
