"""PyTorch's path ``torch.ao.nn``: layers of its quantization, of which there are none here.

``tenon.quantization`` leaves a layer its class and makes the quantized weight a stage of it.
"""

from types import SimpleNamespace

from tenon import nn

__all__ = ["qat", "quantizable", "quantized"]

qat = SimpleNamespace(modules=SimpleNamespace(__all__=[]))
quantizable = SimpleNamespace(modules=SimpleNamespace(__all__=[]))
#: Pooling has no weights, so PyTorch's is the ordinary one.
quantized = SimpleNamespace(modules=SimpleNamespace(__all__=[]), MaxPool2d=nn.MaxPool2d)
