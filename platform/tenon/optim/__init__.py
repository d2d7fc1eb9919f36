"""Optimizers and learning-rate schedules: base classes here, implementations in plugins.

``tenon.optim.SGD`` is resolved by the plugin host at first access. A new optimizer is a rule
``update(f, p, g, s, h)``; see ``optimizer.py``.
"""

from __future__ import annotations

from tenon.optim import lr_scheduler as lr_scheduler
from tenon.optim import swa_utils as swa_utils
from tenon.optim.optimizer import Optimizer as Optimizer
from tenon.optim.sparse_adam import SparseAdam as SparseAdam
from tenon.plugins.lazy import lazy_namespace

__getattr__, __dir__ = lazy_namespace(__name__, kind="optimizers")
