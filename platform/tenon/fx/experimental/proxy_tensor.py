"""PyTorch's ``torch.fx.experimental.proxy_tensor``."""

from __future__ import annotations


def get_proxy_mode() -> None:
    """Return None: no mode that traces tensors is active."""
