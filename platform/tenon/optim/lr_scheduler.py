"""``torch.optim.lr_scheduler``: the base class, and the schedules that plugins declare."""

from __future__ import annotations

from tenon.optim.scheduler import EPOCH_DEPRECATION_WARNING as EPOCH_DEPRECATION_WARNING
from tenon.optim.scheduler import LRScheduler as LRScheduler
from tenon.plugins.lazy import lazy_namespace

_LRScheduler = LRScheduler  # the name before PyTorch 2.0

__getattr__, __dir__ = lazy_namespace(__name__, kind="schedulers")
