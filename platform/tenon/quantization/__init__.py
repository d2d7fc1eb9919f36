"""``tenon.quantize``: models of fewer bits. Guide: ``docs/guide/quantization.md``.

``api`` is the one call; ``scheme`` what plugins derive from; ``layers`` what takes the place of layers;
``numbers`` how weights become few bits; ``structure`` how all of it is saved and loaded.
"""

from tenon.quantization.api import Quantized, quantize
from tenon.quantization.layers import DynamicLinear, QuantizedEmbedding
from tenon.quantization.numbers import from_int4, from_int8, to_int4, to_int8
from tenon.quantization.scheme import Scheme, WeightScheme
from tenon.quantization.static import RangeObserver, StaticScheme, observer_of, steps_of
from tenon.quantization.static_layers import StaticConv, StaticLinear, StaticMaxPool
from tenon.quantization.structure import load

__all__ = [
    "DynamicLinear",
    "Quantized",
    "QuantizedEmbedding",
    "RangeObserver",
    "Scheme",
    "StaticConv",
    "StaticLinear",
    "StaticMaxPool",
    "StaticScheme",
    "WeightScheme",
    "from_int4",
    "from_int8",
    "load",
    "observer_of",
    "quantize",
    "steps_of",
    "to_int4",
    "to_int8",
]
