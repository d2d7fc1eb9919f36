"""Weight averaging over training: stochastic weight averaging (SWA) and exponential moving averages (EMA).

PyTorch's torch.optim.swa_utils. SWA is by Izmailov et al. (2018), the moving average by Polyak (1990)::

    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))
    for batch in loader:
        train(model, batch)
        average.update_parameters(model)
    update_bn(loader, average)
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from tenon.device import DeviceLike
from tenon.dtypes import int64
from tenon.engine.types import Nested
from tenon.nn.layers.norm import _BatchNorm
from tenon.nn.module import Module
from tenon.optim.optimizer import Optimizer
from tenon.optim.scheduler import LRScheduler, per_group
from tenon.optim.types import PerGroup, Scalar
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.creation.create import tensor
from tenon.tensors.tensor import Tensor

#: ``avg_fn(averaged, current, num_averaged)`` returns the new average of one tensor.
AverageOne: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]
#: ``multi_avg_fn(averaged, current, num_averaged)`` updates the averages of all tensors in place.
AverageMany: TypeAlias = Callable[[Sequence[Tensor], Sequence[Tensor], Tensor], None]


def get_ema_avg_fn(decay: float = 0.999) -> AverageOne:
    """Return the ``avg_fn`` of an exponential moving average: ``decay * average + (1 - decay) * current``."""
    _check_decay(decay)

    def average(averaged: Tensor, current: Tensor, num_averaged: Tensor) -> Tensor:
        with no_grad():
            mean = decay * averaged + (1 - decay) * current
        return mean

    return average


def get_ema_multi_avg_fn(decay: float = 0.999) -> AverageMany:
    """Return the ``multi_avg_fn`` of an exponential moving average, which works in place."""
    _check_decay(decay)

    def average(averaged: Sequence[Tensor], current: Sequence[Tensor], num_averaged: Tensor) -> None:
        _towards(averaged, current, 1 - decay)

    return average


def get_swa_avg_fn() -> AverageOne:
    """Return the ``avg_fn`` of the arithmetic mean over all updates."""

    def average(averaged: Tensor, current: Tensor, num_averaged: Tensor) -> Tensor:
        with no_grad():
            mean = averaged + (current - averaged) / (num_averaged + 1)
        return mean

    return average


def get_swa_multi_avg_fn() -> AverageMany:
    """Return the ``multi_avg_fn`` of the arithmetic mean over all updates, which works in place."""

    def average(averaged: Sequence[Tensor], current: Sequence[Tensor], num_averaged: Tensor) -> None:
        _towards(averaged, current, 1 / (float(num_averaged) + 1))

    return average


def _check_decay(decay: float) -> None:
    if not 0.0 <= decay <= 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


def _towards(averaged: Sequence[Tensor], current: Sequence[Tensor], share: float) -> None:
    with no_grad():
        for mean, new in zip(averaged, current, strict=True):
            if mean.is_floating_point() or mean.is_complex():
                mean.lerp_(new, share)
            else:
                mean.copy_(mean * (1 - share) + new * share)


class AveragedModel(Module):
    """A copy of ``model`` whose parameters are an average over all calls of ``update_parameters``.

    The first call copies; later ones average by ``avg_fn(averaged, current, num_averaged)``, which returns
    the new value, or by ``multi_avg_fn`` on lists, which writes in place; by default the plain mean. Buffers
    are copied, or averaged too with ``use_buffers``. ``state_dict`` holds ``module.*`` and ``n_averaged``.
    As torch.optim.swa_utils.AveragedModel.

    >>> import tenon
    >>> model = tenon.nn.Linear(1, 1, bias=False)
    >>> average = AveragedModel(model)
    >>> for value in (1.0, 2.0, 6.0):
    ...     _ = model.weight.data.fill_(value)
    ...     average.update_parameters(model)
    >>> average.module.weight.item(), average.n_averaged.item()
    (3.0, 3)
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: DeviceLike = None,
        avg_fn: AverageOne | None = None,
        multi_avg_fn: AverageMany | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", tensor(0, dtype=int64, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Nested, **kwargs: Nested) -> Nested:
        """Return the output of the averaged model."""
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Add the parameters of ``model`` to the average. RuntimeError if their number or shapes differ."""
        own = list(self._averaged(self.module))
        new = [p.detach().to(average.device) for average, p in self._pairs(own, list(self._averaged(model)))]
        means = [p.detach() for p in own]
        with no_grad():
            if self.n_averaged.item() == 0:
                for mean, value in zip(means, new, strict=True):
                    mean.copy_(value)
            elif self.avg_fn is None:
                (self.multi_avg_fn or get_swa_multi_avg_fn())(means, new, self.n_averaged)
            else:
                for mean, value in zip(means, new, strict=True):
                    mean.copy_(self.avg_fn(mean, value, self.n_averaged.to(mean.device)))
            if not self.use_buffers:
                for average, buffer in zip(self.module.buffers(), model.buffers(), strict=True):
                    average.detach().copy_(buffer.detach().to(average.device))
            self.n_averaged.add_(1)

    def _averaged(self, model: Module) -> Iterable[Tensor]:
        return itertools.chain(model.parameters(), model.buffers() if self.use_buffers else ())

    def _pairs(self, own: list[Tensor], others: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
        shapes, other_shapes = ([tuple(p.shape) for p in side] for side in (own, others))
        if shapes != other_shapes:
            raise RuntimeError(
                f"update_parameters() was given a model of other parameters: shapes {other_shapes}, the"
                f" average has {shapes}. Give the model that the average was made from."
            )
        return list(zip(own, others, strict=True))


def update_bn(loader: Iterable[Nested], model: Module, device: DeviceLike = None) -> None:
    """Recompute the running statistics of all batch norms of ``model`` in one pass over ``loader``.

    Batches are tensors, or lists or tuples with the input first; they are moved to ``device`` if given.
    Statistics are plain means over all batches. As torch.optim.swa_utils.update_bn.
    """
    momenta = {m: m.momentum for m in model.modules() if isinstance(m, _BatchNorm)}
    if not momenta:
        return
    was_training = model.training
    model.train()
    try:
        for norm in momenta:
            norm.reset_running_stats()
            norm.momentum = None
        with no_grad():
            for batch in loader:
                batch = batch[0] if isinstance(batch, (list, tuple)) else batch
                model(batch if device is None else batch.to(device))
    finally:
        for norm, momentum in momenta.items():
            norm.momentum = momentum
        model.train(was_training)


class SWALR(LRScheduler):
    """Anneals the rate of each group to ``swa_lr`` within ``anneal_epochs`` steps, and keeps it there.

    ``swa_lr`` is one number or one per group; ``anneal_strategy`` is ``"cos"`` or ``"linear"``. As
    torch.optim.swa_utils.SWALR.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: PerGroup,
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        rates = per_group("swa_lr", optimizer, swa_lr)
        for rate, group in zip(rates, optimizer.param_groups, strict=True):
            group["swa_lr"] = rate
        self.anneal_epochs = anneal_epochs
        self._anneal_strategy = anneal_strategy
        super().__init__(optimizer, last_epoch)

    def _share(self, step: int) -> float:
        """Return the weight of ``swa_lr`` in the rate at ``step``, from 0 to 1."""
        t = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return t if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def get_lr(self) -> list[Scalar]:
        """Return the rates, computed from the current ones, so that another schedule may run first."""
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._share(step - 1), self._share(step)
        rates = []
        for group, rate in zip(self.optimizer.param_groups, self._rates(), strict=True):
            final = group["swa_lr"]
            start = final if before == 1 else (rate - before * final) / (1 - before)
            rates.append(final * now + start * (1 - now))
        return rates


__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]
