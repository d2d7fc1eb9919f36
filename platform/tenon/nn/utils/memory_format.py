"""Conversion of convolution weights to another memory format."""

from __future__ import annotations

from tenon.nn.layers.conv import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d
from tenon.nn.module import Module, ModuleT
from tenon.tensors.memory_formats import memory_format as Format


def convert_conv2d_weight_memory_format(module: ModuleT, memory_format: Format) -> ModuleT:
    """Convert the weights of two-dimensional convolutions to ``memory_format``, in place; return ``module``.

    >>> import tenon
    >>> net = tenon.nn.Sequential(tenon.nn.Conv2d(3, 4, 2))
    >>> net = convert_conv2d_weight_memory_format(net, tenon.channels_last)
    >>> net(tenon.ones(1, 3, 5, 5)).is_contiguous(memory_format=tenon.channels_last)
    True
    """
    return _convert(module, (Conv2d, ConvTranspose2d), memory_format)


def convert_conv3d_weight_memory_format(module: ModuleT, memory_format: Format) -> ModuleT:
    """Convert the weights of three-dimensional convolutions to ``memory_format``, in place; return
    ``module``."""
    return _convert(module, (Conv3d, ConvTranspose3d), memory_format)


def _convert(module: ModuleT, layers: tuple[type[Module], ...], memory_format: Format) -> ModuleT:
    for layer in module.modules():
        if isinstance(layer, layers):
            layer.weight.data = layer.weight.detach().to(memory_format=memory_format)
    return module


__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]
