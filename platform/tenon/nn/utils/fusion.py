"""Fold an evaluated BatchNorm into the convolution or linear layer before it.

With fixed statistics the norm is affine, channel by channel: ``y = s (W x + b - m) + beta`` with
``s = gamma / sqrt(v + eps)``. So ``s W`` and ``s (b - m) + beta`` give the same output in one layer.
"""

from __future__ import annotations

import copy
from typing import Any, TypeVar

from tenon.errors import ModuleValueError, OptionError
from tenon.nn.module import Module
from tenon.nn.parameter import Parameter
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.tensor import Tensor

Layer = TypeVar("Layer", bound=Module)


def fuse_conv_bn_eval(conv: Layer, bn: Module, transpose: bool = False) -> Layer:
    """Return a copy of the convolution ``conv`` with ``bn``, which follows it, folded in.

    Both must be in evaluation mode and ``bn`` must have running statistics. ``transpose`` says that
    ``conv`` is a transposed convolution, whose output channels are the second axis of its weight.

    >>> from tenon import nn
    >>> pair = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)).eval()
    >>> nn.utils.fuse_conv_bn_eval(*pair)
    Conv2d(3, 4, kernel_size=(3, 3), stride=(1, 1))
    """
    _check(conv, bn)
    fused = fuse_conv_bn_weights(**_arguments(conv, bn, "conv"), transpose=transpose)
    return _copy_with(conv, *fused)


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """Weight and bias of a convolution with a BatchNorm after it, in the convolution's dtypes.

    ``conv_w`` is ``[out, in, *kernel]``, or ``[in, out, *kernel]`` with ``transpose``; the other tensors
    are ``[out]``. The results require a gradient where the convolution's own do.
    """
    scale, bias = _affine(conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)
    if transpose:  # [in, out / groups, *kernel]: each group of inputs has outputs of its own
        inputs, outputs = conv_w.shape[:2]
        groups = scale.numel() // outputs
        scale = scale.reshape(groups, 1, outputs).expand(groups, inputs // groups, outputs)
        scale = scale.reshape(inputs, outputs, *[1] * (conv_w.dim() - 2))
    else:
        scale = scale.reshape(-1, *[1] * (conv_w.dim() - 1))
    return _parameters(conv_w, conv_b, scale, bias)


def fuse_linear_bn_eval(linear: Layer, bn: Module) -> Layer:
    """Return a copy of the layer ``linear`` with ``bn``, which follows it, folded in.

    Both must be in evaluation mode; ``bn`` must have running statistics, and ``out_features`` features or
    one.
    """
    _check(linear, bn)
    outputs, features = getattr(linear, "out_features", None), getattr(bn, "num_features", None)
    if features not in (outputs, 1):
        raise OptionError(
            "To fuse, linear.out_features == bn.num_features or bn.num_features == 1, "
            f"got linear.out_features={outputs} and bn.num_features={features}"
        )
    return _copy_with(linear, *fuse_linear_bn_weights(**_arguments(linear, bn, "linear")))


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
) -> tuple[Parameter, Parameter]:
    """Weight ``[out, in]`` and bias ``[out]`` of a linear layer with a BatchNorm after it, in its dtypes."""
    scale, bias = _affine(linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)
    return _parameters(linear_w, linear_b, scale.unsqueeze(-1), bias.expand(linear_w.shape[0]))


def _check(layer: Module, bn: Module) -> None:
    """Raise OptionError unless both are in evaluation mode and ``bn`` has running statistics."""
    if layer.training or bn.training:
        raise OptionError("Fusion only for eval! Call .eval() on the layer and on its BatchNorm first.")
    if getattr(bn, "running_mean", None) is None or getattr(bn, "running_var", None) is None:
        raise OptionError(
            "bn.running_mean and bn.running_var must not be None: a BatchNorm made with "
            "track_running_stats=False normalises by its batch, which no fixed weight can do."
        )


def _arguments(layer: Module, bn: Module, kind: str) -> dict[str, Any]:  # tensors, numbers and None
    """Return the keyword arguments of ``fuse_{kind}_bn_weights`` for two modules."""
    return {
        f"{kind}_w": layer.weight,
        f"{kind}_b": layer.bias,
        "bn_rm": bn.running_mean,
        "bn_rv": bn.running_var,
        "bn_eps": bn.eps,
        "bn_w": bn.weight,
        "bn_b": bn.bias,
    }


def _affine(
    layer_b: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Return scale and shift, per channel, of a layer's bias and the BatchNorm after it."""
    with no_grad():
        scale = variance.add(eps).rsqrt()
        if bn_w is not None:
            scale = bn_w * scale
        bias = scale * (-mean if layer_b is None else layer_b - mean)
        return scale, bias if bn_b is None else bias + bn_b


def _parameters(
    weight: Tensor, layer_b: Tensor | None, scale: Tensor, bias: Tensor
) -> tuple[Parameter, Parameter]:
    """Return ``weight * scale`` and ``bias`` as parameters in the dtypes of the layer."""
    like = weight if layer_b is None else layer_b
    with no_grad():
        fused = (weight * scale).to(weight.dtype)
        if fused.shape != weight.shape:
            raise ModuleValueError(
                f"a BatchNorm of {scale.numel()} channels does not fit a weight of shape"
                f" {tuple(weight.shape)}. Pass the BatchNorm that follows this layer (and transpose=True for"
                " a transposed convolution)."
            )
        shift = bias.to(like.dtype).clone()
    return Parameter(fused, weight.requires_grad), Parameter(shift, like.requires_grad)


def _copy_with(layer: Layer, weight: Parameter, bias: Parameter) -> Layer:
    """Return a copy of ``layer`` with other parameters."""
    result = copy.deepcopy(layer)
    result.weight, result.bias = weight, bias
    return result
