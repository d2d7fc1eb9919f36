"""Tensors for calls that torch and tenon both make."""

from __future__ import annotations

import numpy as np


class Inputs:
    """Makes the same numbers for every package: those of one seed, in the order of the calls."""

    def __init__(self, package, dtype, seed=7, grad=False):
        self.package, self.dtype, self.grad = package, getattr(package, dtype), grad
        self.random = np.random.default_rng(seed)
        self.made = []

    def _of(self, shape, dtype):
        values = (self.random.random(shape) * 0.8 + 0.1).astype(np.float32)
        tensor = self.package.tensor(values.tolist(), dtype=dtype)
        if self.grad:
            tensor.requires_grad_()
        self.made.append(tensor)
        return tensor

    def __call__(self, *shape):
        return self._of(shape, self.dtype)

    def full(self, *shape):
        return self._of(shape, self.package.float32)


def to_numpy(tensor):
    """Any floating tensor as float64."""
    return np.asarray(tensor.detach().double().numpy())
