"""``tenon.quantize``: models of fewer bits. Guide: ``docs/guide/quantization.md``.

``api`` is the one call; ``scheme`` what plugins derive from; ``layers`` what takes the place of layers;
``numbers`` how weights become few bits; ``structure`` how all of it is saved and loaded.
"""

from tenon.quantization.api import Quantized, quantize
from tenon.quantization.layers import DynamicLinear, QuantizedEmbedding
from tenon.quantization.numbers import from_int4, from_int8, to_int4, to_int8
from tenon.quantization.scheme import Scheme, WeightScheme
from tenon.quantization.structure import load

__all__ = [
    "DynamicLinear",
    "Quantized",
    "QuantizedEmbedding",
    "Scheme",
    "WeightScheme",
    "from_int4",
    "from_int8",
    "load",
    "quantize",
    "to_int4",
    "to_int8",
]
