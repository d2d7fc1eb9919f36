"""PyTorch's path ``torch.fx.experimental.proxy_tensor``: whether ops are being traced; they never are."""

__all__ = ["get_proxy_mode"]


def get_proxy_mode() -> None:
    """None: nothing traces."""
