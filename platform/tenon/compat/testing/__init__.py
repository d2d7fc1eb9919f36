"""Second names in ``tenon.testing``: private paths that PyTorch has in ``torch.testing``."""
