"""PyTorch's path ``torch.fx.experimental``."""
