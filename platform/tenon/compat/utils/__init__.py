"""Second names in ``tenon.utils``: private paths and small modules that PyTorch has in ``torch.utils``."""
