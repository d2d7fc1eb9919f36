"""PyTorch's module ``torch.ao.nn``: quantized layers, which are not supported except for pooling.

``tenon.quantization`` does not change the class of a layer; the quantized weight is a stage of it.
"""

from types import SimpleNamespace

from tenon import nn

__all__ = ["qat", "quantizable", "quantized"]

qat = SimpleNamespace(modules=SimpleNamespace(__all__=[]))
quantizable = SimpleNamespace(modules=SimpleNamespace(__all__=[]))
#: Pooling has no weights, so the ordinary layer serves.
quantized = SimpleNamespace(modules=SimpleNamespace(__all__=[]), MaxPool2d=nn.MaxPool2d)
