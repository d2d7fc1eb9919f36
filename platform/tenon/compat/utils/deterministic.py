"""PyTorch's ``torch.utils.deterministic``: a flag that is stored without effect."""

__all__ = ["fill_uninitialized_memory"]

#: Whether ``empty`` should be filled under ``use_deterministic_algorithms``; it is not filled here.
fill_uninitialized_memory: bool = True
