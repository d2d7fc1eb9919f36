"""PyTorch's path ``nn.modules.distance``; the code is in ``tenon.nn.layers.distance``."""

from tenon.nn.layers.distance import CosineSimilarity, PairwiseDistance

__all__ = ["CosineSimilarity", "PairwiseDistance"]
