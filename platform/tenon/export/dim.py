"""PyTorch's ``torch.export.Dim``, and ``dynamic_shapes`` in all its forms as axes of arguments.

Next: ``dim_inference.py`` makes them sizes of a capture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from tenon.engine.types import Nested
from tenon.errors import ArgumentError, UnsupportedError
from tenon.export.naming import argument_names
from tenon.export.signature import leaf_paths
from tenon.export.sizes import affine, is_name
from tenon.plugins.settings import whole
from tenon.tensors.pytree import tree_children, tree_flatten
from tenon.tensors.tensor import Tensor

#: ``dynamic_shapes``: the structure of the arguments, or a dict by name, with ``Dim`` at their axes; an
#: object with a method ``dynamic_shapes``; None.
Shapes: TypeAlias = Any
#: The positional and the other arguments of a call.
Call: TypeAlias = tuple[tuple[Nested, ...], dict[str, Nested]]


class Hint:
    """``Dim.AUTO``, ``Dim.DYNAMIC`` or ``Dim.STATIC``."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"Dim.{self.name}"


class Dim:
    """A size that may change, from ``min`` to ``max``; the same name means the same size.

    Sizes of other axes may be computed from it: a positive multiple, plus or minus a number.

    >>> batch = Dim("batch", max=64)
    >>> batch, 2 * batch + 1
    (Dim('batch', max=64), 2*batch + 1)
    """

    AUTO: ClassVar[Hint] = Hint("AUTO")
    DYNAMIC: ClassVar[Hint] = Hint("DYNAMIC")
    STATIC: ClassVar[Hint] = Hint("STATIC")

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        if not is_name(name):
            raise ArgumentError(f"the name of a Dim, {name!r}, is not an identifier, or a keyword of Python.")
        for which, size in (("min", min), ("max", max)):
            if size is not None:
                whole(f"Dim({name!r})", which, size, most=2**63 - 1)
        self.__name__, self.min, self.max = name, 0 if min is None else min, max
        if max is not None and max < self.min:
            raise ArgumentError(f"Dim({name!r}): min = {min} is more than max = {max}.")

    @property
    def root(self) -> Dim:
        """The ``Dim`` that the size is computed from: itself."""
        return self

    def _form(self) -> tuple[int, int]:
        """Return ``(factor, shift)`` of ``factor*root + shift``."""
        return 1, 0

    def __add__(self, other: int) -> Dim:
        factor, shift = self._form()
        return derived(self.root, factor, shift + _whole(other, f"add {other!r} to {self.__name__}"))

    def __radd__(self, other: int) -> Dim:
        return self + other

    def __sub__(self, other: int) -> Dim:
        factor, shift = self._form()
        return derived(self.root, factor, shift - _whole(other, f"subtract {other!r} from {self.__name__}"))

    def __rsub__(self, other: int) -> Dim:
        raise UnsupportedError(f"Attempted to negate {self.__name__}. {_FORMS}")

    def __mul__(self, other: int) -> Dim:
        what = f"multiply {other!r} with {self.__name__}"
        if _whole(other, what, "a positive integer") < 1:
            raise UnsupportedError(f"Attempted to {what}, where a positive integer was expected. {_FORMS}")
        factor, shift = self._form()
        return derived(self.root, factor * other, shift * other)

    def __rmul__(self, other: int) -> Dim:
        return self * other

    def __repr__(self) -> str:
        shown = [repr(self.__name__)]
        shown += [f"min={self.min}"] if self.min else []
        shown += [f"max={self.max}"] if self.max is not None else []
        return f"Dim({', '.join(shown)})"


_FORMS = "(Only increasing linear operations with integer coefficients are supported.)"


def _whole(value: object, what: str, expected: str = "an integer") -> int:
    if type(value) is not int:
        raise UnsupportedError(f"Attempted to {what}, where {expected} was expected. {_FORMS}")
    return value


class DerivedDim(Dim):
    """A size computed from ``root``: ``factor*root + shift``."""

    def __init__(self, root: Dim, factor: int, shift: int) -> None:
        self.__name__ = str(affine(root.__name__, factor, shift))
        self._root, self._factor, self._shift = root, factor, shift
        self.min = factor * root.min + shift
        self.max = None if root.max is None else factor * root.max + shift
        if self.min < 0:
            raise ArgumentError(
                f"Expected derived min value of {self.__name__} to be >= 0. Please specify an appropriate "
                f"min value for {root.__name__} (currently {root.min})."
            )

    @property
    def root(self) -> Dim:
        """The ``Dim`` that the size is computed from."""
        return self._root

    def _form(self) -> tuple[int, int]:
        return self._factor, self._shift

    def __repr__(self) -> str:
        return self.__name__


def derived(root: Dim, factor: int, shift: int) -> Dim:
    """Return ``factor*root + shift``; ``root`` itself for 1 and 0."""
    return root if (factor, shift) == (1, 0) else DerivedDim(root, factor, shift)


def dims(*names: str, min: int | None = None, max: int | None = None) -> tuple[Dim, ...]:
    """Return a ``Dim`` for each name."""
    return tuple(Dim(name, min=min, max=max) for name in names)


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis whose size may change: the name of its argument, its number, and its size in the example."""

    argument: str
    axis: int
    dim: Dim | Hint
    size: int

    @property
    def symbol(self) -> str:
        """The name of its size."""
        if isinstance(self.dim, Dim):
            return self.dim.__name__
        return f"{self.argument.replace('.', '_')}_{self.axis}"

    def __str__(self) -> str:
        return f"{self.argument}.size()[{self.axis}]"


def dynamic_sizes(function: Callable[..., Nested], call: Call, shapes: Shapes) -> dict[str, dict[int, str]]:
    """Return ``shapes`` as ``dynamic=`` of ``capture``; ``Dim.AUTO`` is a size of its own."""
    dynamic: dict[str, dict[int, str]] = {}
    for axis in requested_axes(function, call, shapes):
        dynamic.setdefault(axis.argument, {})[axis.axis] = axis.symbol
    return dynamic


def requested_axes(function: Callable[..., Nested], call: Call, shapes: Shapes) -> list[Axis]:
    """Return the axes that ``shapes`` lets change; ArgumentError unless it fits the arguments."""
    if shapes is None:
        return []
    if hasattr(shapes, "dynamic_shapes"):
        shapes = shapes.dynamic_shapes(function, *call)
    names = argument_names(function, *call)
    leaves, _ = tree_flatten(call)
    trees = _by_argument(call, names)
    given = _by_name(shapes, list(trees))
    specs = [each for base, tree in trees.items() for each in _of_leaves(base, given.get(base), tree)]
    return [
        axis
        for name, leaf, spec in zip(names, leaves, specs, strict=True)
        for axis in _of_tensor(name, leaf, spec)
    ]


def _by_argument(call: Call, names: Sequence[str]) -> dict[str, Nested]:
    """Return the value of each argument by its name; of ``*args`` the tuple of its values."""
    args, kwargs = call
    trees: dict[str, Nested] = {}
    rest = iter(names)
    for value in args:
        count = len(tree_flatten(value)[0])
        own = [next(rest) for _ in range(count)]
        base = own[0].partition(".")[0] if own else f"empty{len(trees)}"
        if own == [".".join((base, *path)) for path in leaf_paths(value)]:
            trees[base] = value
        else:  # one of *args, which are named args.0, args.1, ...
            trees[base] = (*trees.get(base, ()), value)
    return trees | kwargs


def _by_name(shapes: Shapes, bases: Sequence[str]) -> dict[str, Shapes]:
    if isinstance(shapes, Mapping):
        unknown = [key for key in shapes if key not in bases]
        if unknown:
            raise ArgumentError(
                f"dynamic_shapes names {unknown[0]!r}; the arguments are {', '.join(bases)}. When "
                "`dynamic_shapes` is specified as a dict, its top-level keys must be the arg names."
            )
        return dict(shapes)
    if not isinstance(shapes, tuple | list):
        raise ArgumentError(
            f"dynamic_shapes is a {type(shapes).__name__}. Give a dict by the names of the arguments, or a "
            "tuple or list with an entry for each."
        )
    if len(shapes) != len(bases):
        raise ArgumentError(
            "Detected mismatch between the structure of `inputs` and `dynamic_shapes`: `inputs` has "
            f"{len(bases)} elements, but `dynamic_shapes` has {len(shapes)} elements."
        )
    return dict(zip(bases, shapes, strict=True))


def _of_leaves(path: str, shapes: Shapes, tree: Nested) -> list[Shapes]:
    """Return the part of ``shapes`` for each leaf of ``tree``."""
    found = tree_children(tree)
    if found is None:
        return [shapes]
    _, _, children = found
    if shapes is None:
        return [None] * len(tree_flatten(tree)[0])
    if isinstance(shapes, Mapping) and isinstance(tree, Mapping):
        unknown = [key for key in shapes if key not in tree]
        if unknown:
            raise ArgumentError(f"dynamic_shapes has the key {unknown[0]!r} in {path!r}, which has none.")
        parts = [shapes.get(key) for key in tree]
    else:
        own = tree_children(shapes)
        parts = [shapes] if own is None else list(own[2])
        if own is None or len(parts) != len(children):
            raise ArgumentError(
                f"dynamic_shapes of {path!r} has {len(parts)} entries, and the argument {len(children)}."
            )
    return [
        each
        for number, (part, child) in enumerate(zip(parts, children, strict=True))
        for each in _of_leaves(f"{path}.{number}", part, child)
    ]


def _of_tensor(name: str, leaf: Nested, spec: Shapes) -> list[Axis]:
    """Return the axes of one leaf that may change."""
    if spec is None or (not isinstance(leaf, Tensor) and not spec):
        return []
    if not isinstance(leaf, Tensor):
        raise ArgumentError(f"dynamic_shapes gives sizes of {name!r}, which is not a tensor.")
    shape = tuple(leaf.raw.shape)
    if isinstance(spec, Mapping):
        pairs = list(spec.items())
    else:
        pairs = list(enumerate(spec))
        if len(pairs) != len(shape):
            raise ArgumentError(
                f"dynamic_shapes of {name!r} has {len(pairs)} entries, where the shape {list(shape)} has "
                f"{len(shape)}. Expected it to have the same length as the actual tensor shape."
            )
    axes = []
    for axis, dim in pairs:
        if not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
            raise ArgumentError(
                f"dynamic_shapes names axis {axis!r} of {name!r}, whose shape is {list(shape)}."
            )
        size = shape[axis]
        if isinstance(dim, int) and dim != size:
            raise ArgumentError(
                f"Static shape constraint of {dim} does not match input size of {size}, for axis {axis} of "
                f"{name!r}."
            )
        if dim is None or dim is Dim.STATIC or isinstance(dim, int):
            continue
        if not isinstance(dim, Dim | Hint):
            raise ArgumentError(f"dynamic_shapes has {dim!r} at axis {axis} of {name!r}: give a Dim.")
        if isinstance(dim, Dim) and not (dim.min <= size and (dim.max is None or size <= dim.max)):
            most = "" if dim.max is None else f" to {dim.max}"
            raise ArgumentError(
                f"{name!r} has size {size} at axis {axis}, which is not in range of {dim}: {dim.min}{most}. "
                "Pass another example."
            )
        axes.append(Axis(name, axis % len(shape), dim, size))
    return axes
