"""PyTorch's ``torch.fx.experimental``."""
