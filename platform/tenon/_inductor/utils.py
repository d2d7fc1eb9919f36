"""PyTorch's path ``torch._inductor.utils``."""

__all__ = ["GPU_TYPES"]

#: The types of devices that count as GPUs.
GPU_TYPES = ["cuda", "mps", "xpu", "mtia"]
