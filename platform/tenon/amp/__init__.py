"""Mixed precision: ``autocast`` computes some ops in 16 bits, ``GradScaler`` preserves small gradients.

>>> import tenon
>>> weight = tenon.ones(2, 3, requires_grad=True)
>>> with tenon.autocast("cpu", dtype=tenon.bfloat16):
...     y = tenon.nn.functional.linear(tenon.ones(3), weight)
>>> y.dtype, weight.dtype
(torch.bfloat16, torch.float32)

Guide: ``docs/guide/mixed-precision.md``. Which ops are cast: ``policy.py``; how: ``casting.py``.
"""

from __future__ import annotations

from tenon.amp.autocast_mode import autocast, custom_bwd, custom_fwd
from tenon.amp.grad_scaler import GradScaler
from tenon.amp.state import is_autocast_available

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]
