"""PyTorch's ``torch.backends.xnnpack``: a library for mobile devices that is not used here."""

__all__: list[str] = []

enabled: bool = False
