"""``Embedding`` and ``EmbeddingBag``: tables of learned vectors, looked up by index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenon.errors import OptionError
from tenon.nn import functional as F
from tenon.nn import init
from tenon.nn.module import Module
from tenon.nn.parameter import Parameter
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.creation.factories import empty

if TYPE_CHECKING:
    from tenon.device import DeviceLike
    from tenon.dtypes import dtype
    from tenon.tensors.tensor import Tensor

__all__ = ["Embedding", "EmbeddingBag"]


def _padding_row(padding_idx: int | None, rows: int, name: str = "Padding_idx") -> int | None:
    """Return ``padding_idx`` as a non-negative index; raise OptionError if the table has no such row."""
    if padding_idx is None:
        return None
    if not -rows <= padding_idx < rows:
        raise OptionError(f"{name} must be within num_embeddings: {padding_idx} of {rows}")
    return padding_idx % rows


def _check_shape(weight: Tensor, rows: int, columns: int) -> None:
    """Raise OptionError unless ``weight`` is ``[rows, columns]``."""
    if list(weight.shape) != [rows, columns]:
        raise OptionError(
            f"Shape of weight does not match num_embeddings and embedding_dim: {list(weight.shape)} and"
            f" [{rows}, {columns}]"
        )


def _sizes(embeddings: Tensor) -> tuple[int, int]:
    """Return the numbers of rows and columns of a table; raise OptionError if it is not a matrix."""
    if embeddings.dim() != 2:
        raise OptionError(f"Embeddings parameter is expected to be 2-dimensional, got {embeddings.dim()}")
    rows, columns = embeddings.shape
    return rows, columns


class _Table(Module):
    """Base class of embeddings: a table ``[num_embeddings, embedding_dim]``."""

    weight: Tensor
    num_embeddings: int
    embedding_dim: int
    padding_idx: int | None
    max_norm: float | None
    norm_type: float
    scale_grad_by_freq: bool

    def _create_weight(
        self, weight: Tensor | None, freeze: bool, device: DeviceLike, dtype: dtype | None
    ) -> None:
        """Create the table, which shares the memory of ``weight`` or, without one, is drawn at random."""
        if weight is None:
            weight = empty((self.num_embeddings, self.embedding_dim), device=device, dtype=dtype)
            self.weight = Parameter(weight, requires_grad=not freeze)
            self.reset_parameters()
        else:
            _check_shape(weight, self.num_embeddings, self.embedding_dim)
            self.weight = Parameter(weight, requires_grad=not freeze)

    def reset_parameters(self) -> None:
        """Draw from the standard normal distribution; the padding row is 0."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx].fill_(0)

    def _norm_repr(self) -> str:
        """Return the settings of norms and gradients that differ from the defaults, for ``extra_repr``."""
        text = ""
        if self.max_norm is not None:
            text += f", max_norm={self.max_norm}"
        if self.norm_type != 2:
            text += f", norm_type={self.norm_type}"
        if self.scale_grad_by_freq is not False:
            text += f", scale_grad_by_freq={self.scale_grad_by_freq}"
        return text


class Embedding(_Table):
    """``weight[input]`` for integer ``input`` of any shape; row ``padding_idx`` starts at 0 and is not
    learned."""

    __constants__ = (
        "num_embeddings", "embedding_dim", "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq",
        "sparse",
    )  # fmt: skip

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None,
        max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
        sparse: bool = False, _weight: Tensor | None = None, _freeze: bool = False,
        device: DeviceLike = None, dtype: dtype | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = _padding_row(padding_idx, num_embeddings)
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self._create_weight(_weight, _freeze, device, dtype)
        self.sparse = sparse

    def forward(self, input: Tensor) -> Tensor:
        """The rows at the indices ``input``."""
        return F.embedding(
            input,
            self.weight,
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )

    def extra_repr(self) -> str:
        """Sizes, and what differs from the defaults."""
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.padding_idx is not None:
            text += f", padding_idx={self.padding_idx}"
        text += self._norm_repr()
        if self.sparse is not False:
            text += ", sparse=True"
        return text

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Embedding:
        """Return a table that shares the memory of ``embeddings``, without a gradient if ``freeze``."""
        return cls(
            *_sizes(embeddings),
            _weight=embeddings,
            _freeze=freeze,
            padding_idx=padding_idx,
            max_norm=max_norm,
            norm_type=norm_type,
            scale_grad_by_freq=scale_grad_by_freq,
            sparse=sparse,
        )


class EmbeddingBag(_Table):
    """Sums, means or maxima of the rows of each bag of indices: ``[B, embedding_dim]``."""

    __constants__ = (
        "num_embeddings",
        "embedding_dim",
        "max_norm",
        "norm_type",
        "scale_grad_by_freq",
        "mode",
        "sparse",
        "include_last_offset",
        "padding_idx",
    )

    def __init__(
        self, num_embeddings: int, embedding_dim: int, max_norm: float | None = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
        _weight: Tensor | None = None, include_last_offset: bool = False, padding_idx: int | None = None,
        device: DeviceLike = None, dtype: dtype | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.padding_idx = _padding_row(padding_idx, num_embeddings, "padding_idx")
        self._create_weight(_weight, False, device, dtype)
        self.mode = mode
        self.sparse = sparse
        self.include_last_offset = include_last_offset

    def forward(
        self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        """One row per bag: a bag is a row of ``input[B, S]``, or the part of ``input[L]`` between two
        offsets."""
        return F.embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )

    def extra_repr(self) -> str:
        """Sizes, mode, and what differs from the defaults."""
        text = f"{self.num_embeddings}, {self.embedding_dim}{self._norm_repr()}, mode={self.mode!r}"
        return text if self.padding_idx is None else f"{text}, padding_idx={self.padding_idx}"

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> EmbeddingBag:
        """Return a table that shares the memory of ``embeddings``, without a gradient if ``freeze``."""
        result = cls(
            *_sizes(embeddings),
            _weight=embeddings,
            max_norm=max_norm,
            norm_type=norm_type,
            scale_grad_by_freq=scale_grad_by_freq,
            mode=mode,
            sparse=sparse,
            include_last_offset=include_last_offset,
            padding_idx=padding_idx,
        )
        result.weight.requires_grad = not freeze
        return result
