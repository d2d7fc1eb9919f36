# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.nn.layers.transformer import Transformer as Transformer
from tenon.nn.layers.transformer import TransformerDecoder as TransformerDecoder
from tenon.nn.layers.transformer import TransformerDecoderLayer as TransformerDecoderLayer
from tenon.nn.layers.transformer import TransformerEncoder as TransformerEncoder
from tenon.nn.layers.transformer import TransformerEncoderLayer as TransformerEncoderLayer
