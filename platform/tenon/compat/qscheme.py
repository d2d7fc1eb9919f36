"""``qscheme``: PyTorch's names of quantization schemes; there are no quantized tensors here."""

from __future__ import annotations

from tenon.tensors.layout import TorchName


class qscheme(TorchName):
    """A quantization scheme; compared by identity."""

    __slots__ = ()


per_tensor_affine = qscheme("per_tensor_affine")
per_tensor_symmetric = qscheme("per_tensor_symmetric")
per_channel_affine = qscheme("per_channel_affine")
per_channel_symmetric = qscheme("per_channel_symmetric")
per_channel_affine_float_qparams = qscheme("per_channel_affine_float_qparams")
