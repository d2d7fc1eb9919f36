"""PyTorch's path ``ao.quantization``: the names of it that ``tenon.quantization`` has."""

from tenon.quantization import FakeQuantize, convert, fuse_modules, prepare, prepare_qat, quantize_dynamic

__all__ = ["FakeQuantize", "convert", "fuse_modules", "prepare", "prepare_qat", "quantize_dynamic"]
