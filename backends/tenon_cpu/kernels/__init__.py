"""Kernels that replace reference forwards on the CPU, by op name."""

from __future__ import annotations

from tenon.extend import Kernel
from tenon_cpu.kernels import convolution, direct, piecewise, pooling

KERNELS: dict[str, Kernel] = {**direct.KERNELS, **convolution.KERNELS, **piecewise.KERNELS, **pooling.KERNELS}
