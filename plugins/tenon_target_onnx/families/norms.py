"""Softmax and normalisations that ONNX has as one operator, and negative log likelihood."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenon.extend import Node
from tenon_target_onnx.builder import INT64, Builder
from tenon_target_onnx.forms import alone, form, same_floats
from tenon_target_onnx.sizes import are_numbers


def _has_axis(node: Node) -> bool:
    return same_floats(node) and bool(node.avals[0].shape)


@form("softmax", "log_softmax", when=_has_axis)
def write_softmax(b: Builder, node: Node) -> str:
    """Write ``Softmax`` or ``LogSoftmax``."""
    operator = "Softmax" if node.name == "softmax" else "LogSoftmax"
    return b.call(operator, b.value(node.args[0]), axis=node.attrs["axis"])


def _supports_layer_norm(node: Node) -> bool:
    x = node.args[0].aval
    return (
        same_floats(node)
        and node.attrs["rank"] > 0
        and are_numbers(x.shape[len(x.shape) - node.attrs["rank"] :])
    )


@form("layer_norm", when=_supports_layer_norm)
def write_layer_norm(b: Builder, node: Node) -> str:
    """Write ``LayerNormalization``, with ones if there is no weight."""
    x, weight, bias = node.args
    rank, dtype = node.attrs["rank"], x.aval.dtype
    shape = x.aval.shape[len(x.aval.shape) - rank :]
    scale = b.value(weight) if weight is not None else b.constant(np.ones(shape), dtype)
    more = [b.value(bias)] if bias is not None else []
    epsilon = float(node.attrs.get("eps", 1e-5))
    return b.call("LayerNormalization", b.value(x), scale, *more, axis=-rank, epsilon=epsilon)


@form("batch_norm_inference", when=same_floats)
def write_batch_norm(b: Builder, node: Node) -> str:
    """Write ``BatchNormalization`` with its statistics."""
    x, weight, bias, mean, variance = node.args
    dtype, channels = x.aval.dtype, mean.aval.shape[0]
    scale = b.value(weight) if weight is not None else b.constant(np.ones(channels), dtype)
    shift = b.value(bias) if bias is not None else b.constant(np.zeros(channels), dtype)
    inputs = (b.value(x), scale, shift, b.value(mean), b.value(variance))
    return b.call("BatchNormalization", *inputs, epsilon=float(node.attrs.get("eps", 1e-5)))


def _supports_loss(node: Node) -> bool:
    first: Any = node.args[0].aval  # shape and dtype
    return (
        first.dtype.name == "float32"
        and len(first.shape) >= 2
        and alone(node)
        and math.prod(first.shape[1:]) > 0
    )


@form("nll_loss", when=lambda node: are_numbers(node.args[0].aval.shape) and _supports_loss(node))
def write_loss(b: Builder, node: Node) -> str:
    """Write ``NegativeLogLikelihoodLoss``."""
    logarithms, target, weight = node.args
    more = [b.value(weight)] if weight is not None else []
    return b.call(
        "NegativeLogLikelihoodLoss", b.value(logarithms), b.value(target, INT64), *more,
        reduction=node.attrs.get("reduction", "mean"), ignore_index=int(node.attrs.get("ignore_index", -100)),
    )  # fmt: skip
