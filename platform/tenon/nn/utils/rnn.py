"""Sequences of different lengths: padded to one tensor, or packed step by step without padding.

A ``PackedSequence`` holds first the rows of step 0 of all sequences, longest sequence first, then those of
step 1, and so on; ``batch_sizes`` is the number of sequences in each step. Recurrent layers accept it, and
compute nothing for padding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from tenon.dtypes import int64
from tenon.engine.op import table
from tenon.engine.types import Forwarded
from tenon.errors import ArgumentError, OptionError, ShapeError
from tenon.tensors.creation.create import as_tensor
from tenon.tensors.creation.ranges import arange
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.device import DeviceLike

__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]


class PackedSequence_(NamedTuple):
    """The fields of a ``PackedSequence``."""

    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(PackedSequence_):
    """Rows of several sequences, step by step, as ``pack_sequence`` and ``pack_padded_sequence`` return them.

    ``sorted_indices`` sorts the sequences by length, ``unsorted_indices`` is the inverse permutation; both
    are None if the sequences were sorted already.
    """

    def __new__(
        cls,
        data: Tensor | Sequence[Tensor],
        batch_sizes: Tensor | None = None,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> Self:
        """Create from ``data`` and ``batch_sizes``, which must be on the CPU, or from the pair of both."""
        rows: Any = data  # a tensor, or the pair of rows and batch sizes
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        if batch_sizes is None:
            if not (isinstance(rows, list | tuple) and len(rows) == 2):
                raise OptionError(
                    "PackedSequence: expected data to be a list or tuple of length 2 where no batch_sizes are"
                    f" given, got a {type(rows).__name__}. Make one with pack_sequence."
                )
            rows, batch_sizes = rows
        if batch_sizes.device.type != "cpu":
            raise ArgumentError(
                "batch_sizes should always be on CPU. Instances of PackedSequence should never be created"
                " manually. They should be instantiated by functions like pack_sequence and"
                " pack_padded_sequences in nn.utils.rnn."
            )
        return super().__new__(cls, rows, batch_sizes, sorted_indices, unsorted_indices)

    def _with(self, data: Tensor) -> Self:
        """Return the same sequences with other ``data``; the indices move to its device."""
        if data is self.data:
            return self
        moved = [None if i is None else i.to(data.device) for i in self[2:]]
        return type(self)(data, self.batch_sizes, *moved)

    def to(self, *args: Forwarded, **kwargs: Forwarded) -> Self:
        """With ``data.to(...)``; itself if nothing changes."""
        return self._with(self.data.to(*args, **kwargs))

    def cpu(self) -> Self:
        """On the CPU."""
        return self.to("cpu")

    def cuda(self, device: DeviceLike = None) -> Self:
        """On a GPU."""
        return self._with(self.data.cuda(device))

    def double(self) -> Self:
        """In float64."""
        return self._with(self.data.double())

    def float(self) -> Self:
        """In float32."""
        return self._with(self.data.float())

    def half(self) -> Self:
        """In float16."""
        return self._with(self.data.half())

    def long(self) -> Self:
        """In int64."""
        return self._with(self.data.long())

    def int(self) -> Self:
        """In int32."""
        return self._with(self.data.int())

    def short(self) -> Self:
        """In int16."""
        return self._with(self.data.short())

    def char(self) -> Self:
        """In int8."""
        return self._with(self.data.char())

    def byte(self) -> Self:
        """In uint8."""
        return self._with(self.data.byte())

    @property
    def is_cuda(self) -> bool:
        """Whether ``data`` is on a GPU."""
        return bool(self.data.is_cuda)

    def is_pinned(self) -> bool:
        """Whether ``data`` is in pinned memory."""
        return bool(self.data.is_pinned())


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes ``permutation``; None for None."""
    return None if permutation is None else permutation.argsort()


def _step_mask(batch_sizes: Tensor) -> Tensor:
    """Return a mask ``[T, B]`` that is True where a sequence has a row in a step."""
    return arange(int(batch_sizes[0]), device="cpu") < batch_sizes.unsqueeze(1)


def _check_lengths(shape: tuple[int, ...], lengths: list[int]) -> None:
    """Raise ShapeError unless ``lengths`` are positive, sorted, and fit padded sequences of ``shape[T,
    B]``."""
    if len(lengths) != shape[1]:
        raise ShapeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(lengths)}"
            f" (batch_size={shape[1]})"
        )
    if lengths != sorted(lengths, reverse=True):
        raise ShapeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass"
            " `enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this"
            " requirement if you do not need ONNX exportability."
        )
    if not lengths or lengths[-1] <= 0:
        raise ShapeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0"
        )
    if lengths[0] > shape[0]:
        raise ShapeError(
            f"pack_padded_sequence: lengths {lengths} reach beyond the {shape[0]} steps of the input. Check"
            " `lengths` and `batch_first`."
        )


def pack_padded_sequence(
    input: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack ``input[T, B, ...]`` (``[B, T, ...]`` if ``batch_first``) whose sequences have these lengths.

    >>> import tenon
    >>> x = tenon.tensor([[1, 4], [2, 5], [3, 0]])
    >>> tenon.nn.utils.rnn.pack_padded_sequence(x, [3, 2]).data
    tensor([1, 4, 2, 5, 3])
    """
    counts: Tensor = lengths if isinstance(lengths, Tensor) else as_tensor(lengths, dtype=int64)
    order = None
    if not enforce_sorted:
        order = table.argsort(counts.to(dtype=int64), axis=0, descending=True).to(input.device)
        counts = counts.index_select(0, order.to(counts.device))
        input = input.index_select(0 if batch_first else 1, order)
    if not input.numel():
        raise ShapeError("Cannot pack empty tensors.")
    sizes = [int(n) for n in counts.tolist()]
    batch, steps = input.shape[:2] if batch_first else reversed(input.shape[:2])
    _check_lengths((steps, batch), sizes)
    batch_sizes = (counts.cpu() > arange(sizes[0], device="cpu").unsqueeze(1)).sum(1)
    data = input.flatten(0, 1)
    if batch_first or sum(sizes) < steps * batch:
        # From Python numbers, so that a graph has the rows as a constant.
        rows = np.arange(steps * batch)
        rows = rows.reshape(batch, steps).T if batch_first else rows.reshape(steps, batch)
        present = rows[: sizes[0]][np.array(sizes) > np.arange(sizes[0])[:, None]]
        data = data.index_select(0, as_tensor(present, dtype=int64, device=input.device))
    return PackedSequence(data, batch_sizes, order)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The padded sequences, in the order before packing, and their lengths."""
    mask, data = _step_mask(sequence.batch_sizes), sequence.data
    lengths = mask.sum(0)
    steps, batch = mask.shape
    if total_length is not None:
        if total_length < steps:
            raise ArgumentError(
                "Expected total_length to be at least the length of the longest sequence in input, but got "
                f"total_length={total_length} and max sequence length being {steps}"
            )
        mask = table.cat(mask, mask.new_zeros(total_length - steps, batch), axis=0)
        steps = total_length
    count = data.shape[0]
    if batch_first or count < steps * batch:
        # Row ``count``, appended to the data, is the padding.
        rows = (mask.flatten().cumsum(0) - 1).reshape(steps, batch).masked_fill(~mask, count)
        rows = (rows.t() if batch_first else rows).flatten().to(data.device)
        padding = data.new_full((1, *data.shape[1:]), padding_value)
        data = table.cat(data, padding, axis=0).index_select(0, rows)
    shape = (batch, steps) if batch_first else (steps, batch)
    padded = data.reshape(*shape, *data.shape[1:])
    order = sequence.unsorted_indices
    if order is not None:
        return padded.index_select(0 if batch_first else 1, order), lengths.index_select(0, order.cpu())
    return padded, lengths


def pad_sequence(
    sequences: Sequence[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Stack tensors ``[length, ...]`` as ``[T, B, ...]``, padding the shorter ones.

    >>> import tenon
    >>> tenon.nn.utils.rnn.pad_sequence([tenon.ones(3), tenon.ones(1)], batch_first=True)
    tensor([[1., 1., 1.],
            [1., 0., 0.]])
    """
    if not isinstance(sequences, Iterable):
        raise ArgumentError(
            f"pad_sequence: Expected iterable for input sequences, but got arg of type: {type(sequences)}"
        )
    tensors = tuple(sequences)
    if not tensors:
        raise ArgumentError("received an empty list of sequences")
    if padding_side not in ("left", "right"):
        raise ArgumentError(f"Expected padding_side to be one of left or right, but got {padding_side}.")
    steps = max(s.shape[0] for s in tensors)
    padded = []
    for s in tensors:
        missing = steps - s.shape[0]
        if missing:
            padding = s.new_full((missing, *s.shape[1:]), padding_value)
            s = table.cat(*((padding, s) if padding_side == "left" else (s, padding)), axis=0)
        padded.append(s)
    return table.stack(*padded, axis=0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """The sequences of ``padded_sequences``, each as long as ``lengths`` says."""
    padded = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [s[: int(length)] for s, length in zip(padded.unbind(0), lengths.tolist(), strict=True)]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack tensors ``[length, ...]``, the longest first unless ``enforce_sorted=False``."""
    lengths = as_tensor([s.shape[0] for s in sequences], dtype=int64)
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences as tensors ``[length, ...]``, in the order before packing."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
