"""``tenon.quantize``: models of fewer bits. Guide: ``docs/guide/quantization.md``.

``api`` is the one call; ``scheme`` what plugins derive from; ``layers`` what takes the place of layers;
``numbers`` how weights become few bits; ``structure`` how all of it is saved and loaded; ``names`` what
PyTorch calls it.
"""

from tenon.quantization.api import Quantized, quantize
from tenon.quantization.bfloat16_layers import BFLOAT16, BFloat16Layer, BFloat16Linear
from tenon.quantization.layers import (
    DynamicLinear,
    QuantizedEmbedding,
    QuantizedEmbeddingBag,
)
from tenon.quantization.names import fuse_modules, quantize_dynamic
from tenon.quantization.numbers import from_int4, from_int8, to_int4, to_int8
from tenon.quantization.recurrent_layers import (
    DYNAMIC,
    DynamicGRU,
    DynamicGRUCell,
    DynamicLSTM,
    DynamicLSTMCell,
    DynamicRNN,
    DynamicRNNCell,
)
from tenon.quantization.scheme import Scheme, WeightScheme
from tenon.quantization.sensitivity import quantize_within, sensitivity
from tenon.quantization.static import RangeObserver, StaticScheme, observer_of, steps_of
from tenon.quantization.static_layers import StaticConv, StaticLinear, StaticMaxPool
from tenon.quantization.structure import load
from tenon.quantization.training import FakeQuantize, convert, prepare, prepare_qat

__all__ = [
    "BFLOAT16",
    "DYNAMIC",
    "BFloat16Layer",
    "BFloat16Linear",
    "DynamicGRU",
    "DynamicGRUCell",
    "DynamicLSTM",
    "DynamicLSTMCell",
    "DynamicLinear",
    "DynamicRNN",
    "DynamicRNNCell",
    "FakeQuantize",
    "Quantized",
    "QuantizedEmbedding",
    "QuantizedEmbeddingBag",
    "RangeObserver",
    "Scheme",
    "StaticConv",
    "StaticLinear",
    "StaticMaxPool",
    "StaticScheme",
    "WeightScheme",
    "convert",
    "from_int4",
    "from_int8",
    "fuse_modules",
    "load",
    "observer_of",
    "prepare",
    "prepare_qat",
    "quantize",
    "quantize_dynamic",
    "quantize_within",
    "sensitivity",
    "steps_of",
    "to_int4",
    "to_int8",
]
