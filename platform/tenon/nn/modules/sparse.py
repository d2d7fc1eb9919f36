"""PyTorch's path ``nn.modules.sparse``; the code is in ``tenon.nn.layers.embedding``."""

from tenon.nn.layers.embedding import Embedding, EmbeddingBag

__all__ = ["Embedding", "EmbeddingBag"]
