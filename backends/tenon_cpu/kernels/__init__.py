"""Kernels that replace reference forwards on the CPU, by op name."""

from __future__ import annotations

from tenon.extend import Kernel

KERNELS: dict[str, Kernel] = {}
