"""``AdaptiveLogSoftmaxWithLoss``: a softmax over many classes of which few are frequent."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tenon.engine.op import table as f
from tenon.errors import IndexRangeError, ModuleValueError, ShapeError
from tenon.nn import functional as F
from tenon.nn.containers import ModuleList, Sequential
from tenon.nn.layers.linear import Linear
from tenon.nn.module import Module
from tenon.nn.parameter import FactoryOptions
from tenon.tensors.creation.factories import zeros
from tenon.tensors.wrong_arguments import guard

if TYPE_CHECKING:
    from tenon.device import DeviceLike
    from tenon.dtypes import dtype
    from tenon.tensors.tensor import Tensor

__all__ = ["AdaptiveLogSoftmaxWithLoss"]


class _ASMoutput(NamedTuple):
    """Log-probabilities of the targets, and the loss: minus their mean."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log-probabilities of ``target`` among ``n_classes`` that are sorted by frequency (Grave et al., 2017).

    ``cutoffs`` divide the classes: those below the first are outputs of the head; each further interval is a
    cluster, with one output in the head. Cluster ``i`` works on ``in_features / div_value ** (i + 1)``
    projected features, so that rare classes cost little. A call returns ``(output, loss)``.
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: DeviceLike = None,
        dtype: dtype | None = None,
    ) -> None:
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ModuleValueError("cutoffs should be a sequence of length larger than 0")
        rising = all(a < b for a, b in itertools.pairwise([0, *cutoffs, n_classes]))
        if not rising or any(int(c) != c for c in cutoffs):
            raise ModuleValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing order,"
                f" where each value is between 1 and n_classes-1: got {cutoffs} for {n_classes} classes"
            )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*cutoffs, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = cutoffs[0]
        self.n_clusters = len(cutoffs)
        self.head_size = self.shortlist_size + self.n_clusters
        options: FactoryOptions = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, head_bias, **options)
        self.tail = ModuleList()
        for i, (low, high) in enumerate(itertools.pairwise(self.cutoffs)):
            width = int(in_features // div_value ** (i + 1))
            projection = Linear(in_features, width, False, **options)
            self.tail.append(Sequential(projection, Linear(width, high - low, False, **options)))

    def reset_parameters(self) -> None:
        """Initialise all layers anew."""
        self.head.reset_parameters()
        for projection in self.tail:
            for layer in projection.children():
                layer.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        """``(output, loss)`` for ``input_[N, in_features]`` and ``target_[N]``, or without ``N``."""
        rank, expected = input_.dim(), target_.dim() + 1
        if expected > 2:
            raise ShapeError("0D or 1D target tensor expected, multi-target not supported")
        if expected == 2 and input_.shape[0] != target_.shape[0]:
            raise ShapeError(
                "Input and target should have the same size in the batch dimension."
                f" Got {list(input_.shape)} and {list(target_.shape)}."
            )
        if rank != expected:
            raise ShapeError(
                f"{expected - 1}D target tensor expects {expected}D input tensors, but found inputs with size"
                f" {input_.size()}"
            )
        x, target = (input_, target_) if rank == 2 else (input_.unsqueeze(0), target_.unsqueeze(0))
        if target.numel() and not bool(((target >= 0) & (target < self.n_classes)).all()):
            raise IndexRangeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range"
                f" [{target.min().item()}, {target.max().item()}] were found. "
            )
        head, output = F.log_softmax(self.head(x), 1), zeros(len(target), dtype=x.dtype, device=x.device)
        head_index = target
        for i, (low, high) in enumerate(itertools.pairwise(self.cutoffs)):
            rows = ((target >= low) & (target < high)).nonzero().squeeze(1)
            if rows.numel():
                head_index = head_index.index_fill(0, rows, self.shortlist_size + i)
                log_probs = F.log_softmax(self.tail[i](x.index_select(0, rows)), 1)
                target_log_probs = log_probs.gather(
                    1, (target.index_select(0, rows) - low).unsqueeze(1)
                ).squeeze(1)
                output = output.index_copy(0, rows, target_log_probs)
        output = output + head.gather(1, head_index.unsqueeze(1)).squeeze(1)
        return _ASMoutput(output if rank == 2 else output.squeeze(0), (-output).mean())

    def _full_log_prob(self, input: Tensor, head: Tensor) -> Tensor:
        """Return the log-probabilities of all classes, given the head's outputs."""
        head_log_probs = F.log_softmax(head, 1)
        size = self.shortlist_size
        parts = [head_log_probs[:, :size]]
        for i, projection in enumerate(self.tail):
            parts.append(F.log_softmax(projection(input), 1) + head_log_probs[:, size + i].unsqueeze(1))
        return f.cat(*parts, axis=1)

    def log_prob(self, input: Tensor) -> Tensor:
        """Log-probabilities of all classes: ``[N, in_features]`` to ``[N, n_classes]``."""
        return self._full_log_prob(input, self.head(input))

    def predict(self, input: Tensor) -> Tensor:
        """The most probable class of each row: ``log_prob(input).argmax(1)``, without computing clusters that
        the head does not choose."""
        head = self.head(input)
        best = head.argmax(1)
        rare = best >= self.shortlist_size
        if not bool(rare.any()):
            return best
        best[rare] = self._full_log_prob(input[rare], head[rare]).argmax(1)
        return best


guard((AdaptiveLogSoftmaxWithLoss.forward,), first=0)
