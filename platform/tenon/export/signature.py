"""``Signature``: names and order of a captured graph's arguments, state and scalars, and the nested structure
of arguments and results.

Inputs of the graph are named by ``Node.label``. A signature has no reference to nodes, so that it stays valid
when the graph is copied or rewritten.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, TypeAlias

from tenon.engine.types import Nested
from tenon.errors import ArgumentError, CaptureError
from tenon.export.values import same_structure
from tenon.nn.module import Module
from tenon.serialize.limits import cut
from tenon.tensors.pytree import TreeSpec, tree_flatten, tree_unflatten
from tenon.tensors.tensor import Tensor

#: A leaf of nested arguments and results: a tensor, or a plain value of any type.
Leaf: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class TensorArgument:
    """A tensor among the arguments: the input of the graph with this label."""

    name: str


@dataclass(frozen=True, slots=True)
class Result:
    """A tensor in the function's result: an output of the graph."""

    index: int


@dataclass(frozen=True, slots=True)
class ScalarInput:
    """A number that every run reads: a learning rate, or the number of a step."""

    name: str
    #: The number in the first run.
    value: float
    #: What each run adds to it: 1 for the number of a step, else 0.
    increment: float = 0.0


@dataclass(frozen=True)
class Signature:
    """The arguments, the state and the results of a captured function."""

    #: The structure of ``(args, kwargs)``.
    in_spec: TreeSpec
    #: For each leaf of the arguments a ``TensorArgument``, or the plain value that was captured.
    arguments: tuple[Leaf, ...]
    #: The structure of the returned value.
    out_spec: TreeSpec
    #: For each leaf of it a ``Result``, or the plain value that was returned.
    returned: tuple[Leaf, ...]
    #: Label of each input besides arguments -> "parameter", "buffer", "optimizer", "gradient" or "tensor".
    states: Mapping[str, str] = field(default_factory=dict)
    #: The scalar inputs, in the order of the graph.
    scalars: tuple[ScalarInput, ...] = ()
    #: Another name of a parameter or buffer -> its label, which is the first: tied weights.
    aliases: Mapping[str, str] = field(default_factory=dict)

    @property
    def inputs(self) -> list[str]:
        """The labels of the tensor arguments, in order."""
        return [each.name for each in self.arguments if isinstance(each, TensorArgument)]

    def flatten(self, args: Sequence[Nested], kwargs: Mapping[str, Nested]) -> list[Leaf]:
        """Return the tensors among the arguments, in the order of ``inputs``.

        ArgumentError unless structure and plain values are those of the capture.
        """
        leaves, spec = tree_flatten((tuple(args), dict(kwargs)))
        if spec != self.in_spec and not same_structure(spec, self.in_spec):
            raise ArgumentError(
                f"the captured function takes {described(self.in_spec)}, but was given {described(spec)}. "
                "Pass arguments in the structure of the examples."
            )
        tensors = []
        for leaf, own in zip(leaves, self.arguments, strict=True):
            if isinstance(own, TensorArgument):
                tensors.append(leaf)
            elif not _is_same(leaf, own):
                raise ArgumentError(
                    f"the function was captured with the plain argument {own!r}, but was given {leaf!r}. "
                    "Capture it again with that value."
                )
        return tensors

    def arguments_of(self, tensors: Sequence[object]) -> tuple[tuple[Nested, ...], dict[str, Nested]]:
        """Return ``(args, kwargs)`` with these tensors, in the order of ``inputs``."""
        given = iter(tensors)
        leaves = [next(given) if isinstance(each, TensorArgument) else each for each in self.arguments]
        args, kwargs = tree_unflatten(leaves, self.in_spec)
        return tuple(args), dict(kwargs)

    def unflatten(self, outputs: Sequence[object]) -> Nested:
        """Return the function's result from the graph's outputs."""
        leaves = [outputs[each.index] if isinstance(each, Result) else each for each in self.returned]
        return tree_unflatten(leaves, self.out_spec)


def described(spec: TreeSpec) -> str:
    """Return the structure of ``(args, kwargs)`` as text, cut if it is long: ``(*, [*, *], mask=*)``."""
    args, kwargs = spec.children_specs
    parts = [_text(child) for child in args.children_specs]
    parts += [
        f"{name}={_text(child)}" for name, child in zip(kwargs.context[0], kwargs.children_specs, strict=True)
    ]
    return cut(f"({', '.join(parts)})")


def _text(spec: TreeSpec) -> str:
    if spec.is_leaf():
        return "*"
    children = [_text(child) for child in spec.children_specs]
    if isinstance(spec.context, tuple) and spec.type is not None and len(spec.context) == 2:
        keys, _ = spec.context
        return "{" + ", ".join(f"{k!r}: {c}" for k, c in zip(keys, children, strict=True)) + "}"
    opening, closing = "[]" if spec.type is list else "()"
    return f"{opening}{', '.join(children)}{closing}"


def leaf_paths(tree: Nested) -> Iterator[tuple[str, ...]]:
    """Yield the path of each leaf of ``tree``, from left to right: the keys and positions that lead to it."""
    leaves, spec = tree_flatten(tree)
    del leaves
    yield from _paths(spec, ())


def _paths(spec: TreeSpec, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if spec.is_leaf():
        yield path
        return
    names: Sequence[object] = range(spec.num_children)
    if spec.type == "namedtuple":
        names = spec.context._fields
    elif isinstance(spec.type, type) and issubclass(spec.type, dict):
        names = spec.context[0]
    for name, child in zip(names, spec.children_specs, strict=True):
        yield from _paths(child, (*path, str(name)))


def is_tensor(value: object) -> bool:
    """Whether a leaf of arguments or results is a tensor."""
    return isinstance(value, Tensor)


def _is_same(leaf: Leaf, own: Leaf) -> bool:
    """Whether a plain argument is the captured one."""
    if leaf is own:
        return True
    try:
        return leaf.__class__ is own.__class__ and bool(leaf == own)
    except (TypeError, ValueError, RuntimeError):  # objects with tensors have no single answer
        return False


def check_returned(leaf: Leaf) -> None:
    """Raise CaptureError for an object with tensors in it, which a run would return as it is now."""
    if isinstance(leaf, Module) or hasattr(leaf, "param_groups"):
        return
    members = [*leaf] if isinstance(leaf, set | frozenset) else [*getattr(leaf, "__dict__", {}).values()]
    if is_dataclass(leaf):
        members = [getattr(leaf, each.name, None) for each in fields(leaf)]
    if any(isinstance(part, Tensor) for member in members for part in tree_flatten(member)[0]):
        name = type(leaf).__name__
        how = (
            f"tenon.export.register_dataclass({name})"
            if is_dataclass(leaf)
            else f"tenon.utils._pytree.register_pytree_node({name}, flatten, unflatten)"
        )
        raise CaptureError(
            f"the function returns a {name} with tensors in it, which would have the example's values in "
            "every run. Return tensors in tuples, lists, dictionaries or named tuples, or register the class "
            f"by {how}."
        )
