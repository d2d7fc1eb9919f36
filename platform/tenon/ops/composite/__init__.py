"""Ops defined by other ops, one family per file. Those with gradient rules run as a single node."""

from tenon.ops.composite import (
    activation,
    attention,
    classification,
    embedding,
    linear,
    loss,
    norm,
    recurrent,
    recurrent_grad,
    softmax,
    sparse,
    statistics,
)

__all__ = [
    "activation",
    "attention",
    "classification",
    "embedding",
    "linear",
    "loss",
    "norm",
    "recurrent",
    "recurrent_grad",
    "softmax",
    "sparse",
    "statistics",
]
