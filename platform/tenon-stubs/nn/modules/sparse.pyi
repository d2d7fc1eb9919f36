# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.nn.layers.embedding import Embedding as Embedding
from tenon.nn.layers.embedding import EmbeddingBag as EmbeddingBag
