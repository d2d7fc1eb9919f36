"""Activations whose formula takes several steps; ``_saved`` returns the derivative too."""

from __future__ import annotations

import numpy as np

from tenon_target_numpy.templates.mathematics import erfc, sigmoid


def normal_cdf(x: np.ndarray) -> np.ndarray:
    """Return the cumulative distribution function of the normal distribution."""
    return erfc(x * -0.7071067811865476) * 0.5


def tanh_gate(x: np.ndarray) -> np.ndarray:
    """Return an approximation of ``normal_cdf`` by a hyperbolic tangent."""
    return np.tanh(x * (x * x * 0.035677408136300125 + 0.7978845608028654)) * 0.5 + 0.5


def gelu(x: np.ndarray, approximate: str = "none") -> np.ndarray:
    """Return ``x`` times the normal distribution function of ``x``."""
    return x * (tanh_gate(x) if approximate == "tanh" else normal_cdf(x))


def gelu_saved(x: np.ndarray, approximate: str = "none") -> tuple[np.ndarray, np.ndarray]:
    """Return ``gelu`` and its derivative."""
    if approximate == "tanh":
        gate = tanh_gate(x)
        inner = x * x * 0.21406444881780074 + 1.5957691216057308
        return x * gate, gate + gate * (1.0 - gate) * inner * x
    gate = normal_cdf(x)
    return x * gate, gate + np.exp(x * x * -0.5) * 0.3989422804014327 * x


def silu_saved(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ``x * sigmoid(x)`` and its derivative."""
    gate = sigmoid(x)
    return x * gate, gate * (x * (1.0 - gate) + 1.0)


def mish(x: np.ndarray) -> np.ndarray:
    """Return ``x * tanh(softplus(x))``."""
    return x * np.tanh(softplus(x))


def mish_saved(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ``mish`` and its derivative."""
    gate = np.tanh(softplus(x))
    return x * gate, gate + x * (1.0 - gate * gate) * sigmoid(x)


def elu(x: np.ndarray, alpha: float = 1.0, scale: float = 1.0, rate: float = 1.0) -> np.ndarray:
    """Return ``scale * x`` where positive, else ``scale * alpha * (exp(rate * x) - 1)``."""
    return np.where(x > 0, x * scale, np.expm1(np.minimum(x, 0.0) * rate) * (alpha * scale))


def softplus(x: np.ndarray, beta: float = 1.0, threshold: float = 20.0) -> np.ndarray:
    """Return ``log(1 + exp(beta * x)) / beta``; ``x`` where ``beta * x > threshold``."""
    scaled = x * beta
    return np.where(scaled > threshold, x, np.log1p(np.exp(np.minimum(scaled, threshold))) / beta)


def logsigmoid(x: np.ndarray) -> np.ndarray:
    """Return ``log(sigmoid(x))``."""
    return np.minimum(x, 0.0) - np.log1p(np.exp(-np.abs(x)))


def hardsigmoid(x: np.ndarray) -> np.ndarray:
    """Return ``clamp(x / 6 + 1 / 2, 0, 1)``."""
    return np.clip(x + 3.0, 0.0, 6.0) / 6.0


def hardswish(x: np.ndarray) -> np.ndarray:
    """Return ``x * hardsigmoid(x)``."""
    return x * np.clip(x + 3.0, 0.0, 6.0) / 6.0


def threshold(x: np.ndarray, threshold: float, value: float) -> np.ndarray:
    """Return ``x`` where it is above ``threshold``, else ``value``."""
    return np.where(x <= threshold, x.dtype.type(value), x)


def softshrink(x: np.ndarray, bound: float = 0.5) -> np.ndarray:
    """Return ``x`` moved towards 0 by ``bound``."""
    return np.where(x > bound, x - bound, np.where(x < -bound, x + bound, x * 0))


def hardshrink(x: np.ndarray, bound: float = 0.5) -> np.ndarray:
    """Return ``x``; 0 where ``|x| <= bound``."""
    return np.where((x >= -bound) & (x <= bound), x.dtype.type(0), x)
