"""Ops made of other ops, one family a file. Those with gradient rules run as a single node."""

from tenon.ops.composite import softmax, statistics

__all__ = ["softmax", "statistics"]
