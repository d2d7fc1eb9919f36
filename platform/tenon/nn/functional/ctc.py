"""``F.ctc_loss``: connectionist temporal classification."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index

import tenon.ops  # noqa: F401 - fills the op table
from tenon import dtypes
from tenon.engine.op import table as f
from tenon.kernels.whole_arrays import beside
from tenon.nn.functional.arguments import reduction_of
from tenon.ops.composite.loss import reduced
from tenon.tensors.creation.create import as_tensor
from tenon.tensors.precision import runs_in
from tenon.tensors.tensor import Tensor


@runs_in("float32")
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Minus the log-probability that ``log_probs[T, N, C]`` (or ``[T, C]``) spell ``targets``.

    ``targets`` is ``[N, S]``, with any padding, or one vector of all labels. Lengths are tensors or sequences
    of N integers. The mean is over the losses, each divided by its target's length (at least 1).
    ``zero_infinity``: a target longer than its input counts as 0, and so does its gradient.
    """
    mode = reduction_of(None, None, reduction)
    inputs, labels = (
        lengths if isinstance(lengths, Tensor) else beside(log_probs, as_tensor(lengths, dtype=dtypes.int64))
        for lengths in (input_lengths, target_lengths)
    )
    is_unbatched = log_probs.ndim == 2
    if is_unbatched:
        log_probs, targets = log_probs.unsqueeze(1), targets.reshape(1, -1)
        inputs, labels = inputs.reshape(-1), labels.reshape(-1)
    losses = f.ctc_loss(log_probs, targets, inputs, labels, blank=index(blank))
    if zero_infinity:
        losses = f.where(f.eq(losses, float("inf")), 0.0, losses)
    if mode == "mean":
        losses = losses / labels.clamp(min=1).to(device=losses.device, dtype=losses.dtype)
    elif mode == "none" and is_unbatched:
        losses = losses.squeeze(0)
    return reduced(f, losses, mode)
