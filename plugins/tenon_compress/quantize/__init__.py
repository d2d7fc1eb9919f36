"""``tenon.quantize``: quantize models. Guide: ``docs/guide/quantization.md``.

``api`` has ``quantize``; ``scheme`` the base classes of schemes; ``static``, ``dynamic`` and ``weights`` the
schemes; ``layers`` and the files named ``..._layers`` the quantized layers; ``integers`` the conversion of
weights; ``training`` quantization-aware training; ``structure`` saving and loading; ``pytorch_names``
functions under PyTorch's names.
"""

from tenon_compress.quantize import dynamic as dynamic
from tenon_compress.quantize import observers as observers
from tenon_compress.quantize import weights as weights
from tenon_compress.quantize.api import Quantized, quantize
from tenon_compress.quantize.bfloat16_layers import BFLOAT16, BFloat16Layer, BFloat16Linear
from tenon_compress.quantize.integers import from_int4, from_int8, to_int4, to_int8
from tenon_compress.quantize.layers import (
    DynamicLinear,
    QuantizedEmbedding,
    QuantizedEmbeddingBag,
)
from tenon_compress.quantize.pytorch_names import fuse_modules, quantize_dynamic
from tenon_compress.quantize.recurrent_layers import (
    DYNAMIC,
    DynamicGRU,
    DynamicGRUCell,
    DynamicLSTM,
    DynamicLSTMCell,
    DynamicRNN,
    DynamicRNNCell,
)
from tenon_compress.quantize.scheme import Scheme, WeightScheme
from tenon_compress.quantize.sensitivity import quantize_within, sensitivity
from tenon_compress.quantize.static import RangeObserver, StaticScheme, observer_of, steps_of
from tenon_compress.quantize.static_layers import StaticConv, StaticLinear, StaticMaxPool
from tenon_compress.quantize.structure import load
from tenon_compress.quantize.training import FakeQuantize, convert, prepare, prepare_qat

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
