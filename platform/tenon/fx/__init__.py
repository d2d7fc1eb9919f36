"""PyTorch's ``torch.fx``: programs traced into graphs of nodes, changed by Python code, and run again."""

from __future__ import annotations

from tenon.fx.wrapping import wrap

__all__ = ["wrap"]
