"""``func.vmap``: a function of one sample called for every sample of a batch.

It is a loop and a ``stack``: the function is called once for each sample, and no op is batched. If that is
too slow, write the function for a batch axis, as ops broadcast.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from tenon.engine.op import table
from tenon.engine.types import Nested
from tenon.errors import ArgumentError, UnsupportedError
from tenon.random import default_generator
from tenon.tensors.pytree import TreeSpec, tree_flatten, tree_unflatten
from tenon.tensors.tensor import Tensor

__all__ = ["vmap"]

#: Axes nested as the arguments or results are: an int, or None for no batch axis, applies to all below it.
Axes: TypeAlias = int | Sequence["Axes"] | Mapping[str, "Axes"] | None


def vmap(
    func: Callable[..., Nested],
    in_dims: Axes = 0,
    out_dims: Axes = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Nested]:
    """Return a function that calls ``func`` for every index of the batch axes and stacks the results.

    ``in_dims`` is the batch axis of each argument, nested as the arguments are; None passes it whole to every
    call. ``out_dims`` is the batch axis of the results. ``randomness``: "error", "same" or "different" random
    numbers for each sample. ``chunk_size`` has no effect, as ``func`` is called for one sample at a time.

    >>> import tenon
    >>> from tenon.func import grad, vmap
    >>> vmap(grad(lambda x: x**2))(tenon.tensor([1.0, 2.0]))
    tensor([2., 4.])
    """
    if randomness not in ("error", "different", "same"):
        raise ArgumentError(
            f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}"
        )
    name = getattr(func, "__name__", repr(func))

    @functools.wraps(func)
    def mapped(*args: Nested, **kwargs: Nested) -> Nested:
        leaves, spec = tree_flatten(args)
        axes = _axes(name, in_dims, leaves, spec)
        count = _size(leaves, axes)
        before = default_generator.get_state() if randomness != "different" else None
        results = []
        for i in range(count):
            if before is not None and randomness == "same":
                default_generator.set_state(before)
            sample = [v if a is None else v.select(a, i) for v, a in zip(leaves, axes, strict=True)]
            results.append(func(*tree_unflatten(sample, spec), **kwargs))
            if randomness == "error" and not bool((default_generator.get_state() == before).all()):
                raise ArgumentError(
                    "vmap: called random operation while in randomness error mode. Please either use the"
                    " 'same' or 'different' randomness flags on vmap or perform the randomness operation out"
                    " of vmap"
                )
        return _stacked(name, results, out_dims)

    return mapped


def _axes(name: str, in_dims: Axes, leaves: list[object], spec: TreeSpec) -> list[int | None]:
    """Return the batch axis of every leaf of the arguments."""
    call = f"vmap({name}, in_dims={in_dims}, ...)(<inputs>)"
    if not isinstance(in_dims, (int, tuple, list)):
        raise ArgumentError(
            f"{call}: expected `in_dims` to be int or a (potentially nested) tuple matching the structure of"
            f" inputs, got: {type(in_dims)}."
        )
    if not leaves:
        raise ArgumentError(
            f"vmap({name})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are trying to"
            " vmap over a function with no inputs. The latter is unsupported."
        )
    axes: list[int | None] = []
    if not _broadcast(tuple(in_dims) if isinstance(in_dims, list) else in_dims, spec, axes):
        raise ArgumentError(f"{call}: in_dims is not compatible with the structure of `inputs`: {spec}")
    for value, axis in zip(leaves, axes, strict=True):
        if axis is None:
            continue
        if not isinstance(value, Tensor):
            raise ArgumentError(
                f"{call}: Got in_dim={axis} for an input but the input is of type {type(value)}. We cannot"
                " vmap over non-Tensor arguments, please use None as the respective in_dim"
            )
        if not -value.ndim <= axis < value.ndim:
            raise ArgumentError(
                f"{call}: Got in_dim={axis} for some input, but that input is a Tensor of dimensionality"
                f" {value.ndim} so expected in_dim to satisfy -{value.ndim} <= in_dim < {value.ndim}."
            )
    return axes


def _broadcast(axes: Axes, spec: TreeSpec, result: list[int | None]) -> bool:
    """Append the axis of each leaf of ``spec`` to ``result``; return False if the structures differ."""
    if axes is None or isinstance(axes, int):
        result.extend([axes] * spec.num_leaves)
        return True
    if spec.is_leaf() or len(axes) != spec.num_children:
        return False
    children = [axes.get(key) for key in spec.context[0]] if isinstance(axes, Mapping) else list(axes)
    return all(_broadcast(a, child, result) for a, child in zip(children, spec.children_specs, strict=True))


def _size(leaves: list[Any], axes: list[int | None]) -> int:  # tensors, where there is an axis
    """Return the batch size; ArgumentError unless all batch axes have it."""
    sizes = [v.shape[a] for v, a in zip(leaves, axes, strict=True) if a is not None]
    if not sizes:
        raise ArgumentError("vmap: Expected at least one Tensor to vmap over")
    if len(set(sizes)) > 1:
        raise ArgumentError(
            "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes"
            f" {sizes} for the mapped dimension"
        )
    if not sizes[0]:
        raise UnsupportedError(
            "vmap over a batch of size 0: the function is not called, so the shape of the results is unknown."
        )
    return int(sizes[0])


def _stacked(name: str, results: list[Nested], out_dims: Axes) -> Nested:
    """Return the results of all samples, each leaf stacked along its axis of ``out_dims``."""
    flat = [tree_flatten(result) for result in results]
    spec = flat[0][1]
    axes: list[int | None] = []
    if not _broadcast(tuple(out_dims) if isinstance(out_dims, list) else out_dims, spec, axes):
        raise ArgumentError(f"vmap({name}): out_dims={out_dims} is not compatible with the outputs: {spec}")
    stacked: list[object] = []
    for axis, *values in zip(axes, *(leaves for leaves, _ in flat), strict=True):
        if axis is None:
            stacked.append(values[0])
            continue
        if not isinstance(values[0], Tensor):
            raise ArgumentError(
                f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(values[0])}. Did you"
                " mean to set out_dims= to None for output?"
            )
        stacked.append(table.stack(*values, axis=axis % (values[0].ndim + 1)))
    return tree_unflatten(stacked, spec)
