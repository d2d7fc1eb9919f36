"""Split a batch into microbatches, and merge the outputs of microbatches into those of the batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from tenon.engine.types import Nested
from tenon.errors import ArgumentError, ShapeError
from tenon.functions.joining import cat
from tenon.tensors.pytree import tree_flatten, tree_map, tree_unflatten
from tenon.tensors.tensor import Tensor

__all__ = ["Replicate", "TensorChunkSpec", "merge_chunks", "split_args_kwargs_into_chunks"]


class TensorChunkSpec:
    """Split a tensor into microbatches along ``split_dim``.

    ``args_chunk_spec`` of a schedule has one for each positional argument, ``kwargs_chunk_spec`` one for each
    keyword argument; an argument that is a container has a container of them.

    Source: torch.distributed.pipelining.microbatch.TensorChunkSpec.

    >>> TensorChunkSpec.from_tuple((0, 1))
    (TensorChunkSpec(0), TensorChunkSpec(1))
    """

    def __init__(self, split_dim: int) -> None:
        self.split_dim = split_dim

    def __repr__(self) -> str:
        return f"TensorChunkSpec({self.split_dim})"

    @staticmethod
    def from_tuple(chunk_dims: tuple[Any, ...]) -> tuple[Any, ...]:  # numbers of axes, or containers of them
        """``chunk_dims`` with a spec in place of each number."""
        specs: tuple[Any, ...] = tree_map(TensorChunkSpec, chunk_dims)  # the same structure
        return specs

    @staticmethod
    def from_dict(chunk_dims: dict[str, Any]) -> dict[str, Any]:  # numbers of axes, or containers of them
        """``chunk_dims`` with a spec in place of each number."""
        specs: dict[str, Any] = tree_map(TensorChunkSpec, chunk_dims)  # the same structure
        return specs


class Replicate:
    """Pass an argument whole to every microbatch, such as a mask of all samples; None means the same."""

    def __repr__(self) -> str:
        return "Replicate()"


#: How a leaf of the arguments or outputs is split or merged.
Spec: TypeAlias = "TensorChunkSpec | Replicate | type[Replicate] | None"
#: The arguments of all microbatches.
Chunks: TypeAlias = tuple[list[tuple[Any, ...]], list[dict[str, Any]]]  # of any types


def split_args_kwargs_into_chunks(
    args: tuple[Nested, ...],
    kwargs: dict[str, Nested] | None,
    chunks: int,
    args_chunk_spec: Sequence[Nested] | None = None,
    kwargs_chunk_spec: Mapping[str, Nested] | None = None,
) -> Chunks:
    """The positional and the keyword arguments of each of ``chunks`` microbatches.

    Tensors are split along their first axis, or as the specs say, into parts whose sizes differ by at most
    one (``tensor_split``); everything else goes to every microbatch. There are fewer microbatches than
    ``chunks`` if a tensor has fewer rows.

    Raises ``ArgumentError`` for specs that do not fit the arguments, ``ShapeError`` for a tensor without
    the axis. Source: torch.distributed.pipelining.microbatch.split_args_kwargs_into_chunks.

    >>> import tenon
    >>> args, kwargs = split_args_kwargs_into_chunks((tenon.arange(5), 7), {"flag": True}, 2)
    >>> args
    [(tensor([0, 1, 2]), 7), (tensor([3, 4]), 7)]
    >>> kwargs
    [{'flag': True}, {'flag': True}]
    """
    if chunks < 1:
        raise ArgumentError(f"a batch can be split into one microbatch or more, not {chunks}.")
    named: dict[Any, Nested] = {**dict(enumerate(args)), **(kwargs or {})}  # by position or name
    specs: dict[Any, Nested] = {}  # the same
    for given, known, what in (
        (args_chunk_spec, dict(enumerate(args)), "args_chunk_spec"),
        (kwargs_chunk_spec, kwargs or {}, "kwargs_chunk_spec"),
    ):
        specs.update(_specs_of(given, known, what))
    flat, structure = tree_flatten(named)
    flat_specs = [spec for key, value in named.items() for spec in _flat_specs(specs[key], value, key)]
    sizes = [_size_of(leaf, spec) for leaf, spec in zip(flat, flat_specs, strict=True)]
    count = min([chunks, *(size for size in sizes if size is not None)])
    if count < 1:
        raise ShapeError(
            f"a batch of 0 samples cannot be split into {chunks} microbatches. Leave empty batches out."
        )
    parts = [_split(leaf, spec, count) for leaf, spec in zip(flat, flat_specs, strict=True)]
    rebuilt = [tree_unflatten([part[index] for part in parts], structure) for index in range(count)]
    return (
        [tuple(chunk[index] for index in range(len(args))) for chunk in rebuilt],
        [{key: chunk[key] for key in kwargs or {}} for chunk in rebuilt],
    )


def _specs_of(
    given: Nested,
    known: Mapping[Any, Nested],  # by position or name
    what: str,
) -> dict[Any, Nested]:  # the same
    """The spec of each argument; arguments have any names or positions."""
    if given is None:
        return {key: tree_map(_default_spec, value) for key, value in known.items()}
    specs = dict(given) if isinstance(given, Mapping) else dict(enumerate(given))
    if specs.keys() != known.keys():
        raise ArgumentError(
            f"{what} has specs for {sorted(map(str, specs))}, but the arguments are"
            f" {sorted(map(str, known))}. Pass one for each, Replicate() for those that are not split."
        )
    return specs


def _default_spec(leaf: Nested) -> Nested:
    return TensorChunkSpec(0) if isinstance(leaf, Tensor) else Replicate()


def _flat_specs(spec: Nested, value: Nested, key: object) -> list[Spec]:
    """A spec for each leaf of ``value``; one spec may stand for a container."""
    count = len(tree_flatten(value)[0])
    leaves: list[Any] = tree_flatten(spec)[0]  # of any type
    if _is_spec(spec):
        leaves = [spec] * count
    if len(leaves) != count or not all(_is_spec(leaf) for leaf in leaves):
        raise ArgumentError(
            f"the chunk spec of argument {key!r} is {spec}, but the argument has {count} values. Pass a"
            " TensorChunkSpec or Replicate() for each, in the same containers."
        )
    return leaves


def _is_spec(value: object) -> bool:
    return value is None or value is Replicate or isinstance(value, TensorChunkSpec | Replicate)


def _size_of(leaf: Nested, spec: Spec) -> int | None:
    """Into how many parts ``leaf`` can be split; None if it is not."""
    if not isinstance(spec, TensorChunkSpec):
        return None
    if not isinstance(leaf, Tensor):
        raise ArgumentError(
            f"Unsupported chunk spec: {spec} and value: {leaf!r} combination. Only tensors are split; pass"
            " Replicate() for it."
        )
    if not -leaf.ndim <= spec.split_dim < leaf.ndim:
        raise ShapeError(
            f"a tensor of shape {list(leaf.shape)} has no axis {spec.split_dim} to split into microbatches."
            " Pass Replicate() in the chunk spec to give it whole to each of them."
        )
    return int(leaf.shape[spec.split_dim])


def _split(leaf: Nested, spec: Spec, count: int) -> Sequence[Nested]:
    if not isinstance(spec, TensorChunkSpec):
        return [leaf] * count
    parts: Sequence[Nested] = leaf.tensor_split(count, spec.split_dim)
    return parts


def split_target(target: Nested, count: int) -> list[Nested]:
    """``target`` in ``count`` parts along the first axis of each of its tensors."""
    (chunks, _) = split_args_kwargs_into_chunks((target,), None, count)
    return [chunk[0] for chunk in chunks]


class LossReducer:
    """In ``output_merge_spec``: combine the values of all microbatches by ``reduce_fn``."""

    def __init__(self, init_value: Nested, reduce_fn: Callable[[Nested, Nested], Nested]) -> None:
        self.init_value, self.reduce_fn = init_value, reduce_fn


def merge_chunks(chunks: Sequence[Nested], chunk_spec: Nested) -> Nested:
    """The outputs of a batch, of those of its microbatches.

    Tensors are concatenated along the first axis, or along the one in ``chunk_spec``, which has the structure
    of an output; what is not a tensor, or has ``Replicate()``, has to be equal in all microbatches.

    Raises ``ArgumentError`` for outputs of another structure than the spec, and values that differ;
    ``ShapeError`` for tensors without the axis. Source: torch.distributed.pipelining.microbatch.merge_chunks.

    >>> import tenon
    >>> merge_chunks([(tenon.zeros(2), 3), (tenon.ones(1), 3)], None)
    (tensor([0., 0., 1.]), 3)
    """
    flat = [tree_flatten(chunk)[0] for chunk in chunks]
    if chunk_spec is None:
        specs, structure = [_default_spec(leaf) for leaf in flat[0]], tree_flatten(chunks[0])[1]
    else:
        specs, structure = tree_flatten(chunk_spec)
    for leaves in flat:
        if len(leaves) != len(specs):
            raise ArgumentError(
                f"an output of {len(leaves)} values did not match chunk spec {chunk_spec}, which has"
                f" {len(specs)}. Pass an output_merge_spec of the structure of the last stage's output."
            )
    columns = zip(*flat, strict=True)
    merged = [_merge(list(column), spec) for column, spec in zip(columns, specs, strict=True)]
    return tree_unflatten(merged, structure)


def _merge(values: list[Nested], spec: Nested) -> Nested:
    if isinstance(spec, LossReducer):
        total = spec.init_value
        for value in values:
            total = spec.reduce_fn(total, value)
        return total
    if isinstance(spec, TensorChunkSpec):
        if not all(isinstance(value, Tensor) and value.ndim for value in values):
            raise ShapeError(
                f"outputs {values[0]!r} of microbatches have no axis {spec.split_dim} to be concatenated"
                " along. Pass output_merge_spec with Replicate() for them, or return_outputs=False."
            )
        return cat(values, dim=spec.split_dim)
    first = values[0]
    for value in values[1:]:
        equal = value == first
        if not (bool(equal.all()) if isinstance(equal, Tensor) else equal):
            raise ArgumentError(
                f"Expected {first}, got {value}: an output that is not split has to be the same in all"
                " microbatches. Pass a TensorChunkSpec for it in output_merge_spec."
            )
    return first
