"""PyTorch's ``torch.backends.cpu``: the vector instruction set of the processor."""

from tenon.compat import cpu

__all__ = ["get_cpu_capability"]


def get_cpu_capability() -> str:
    """Return ``"AVX512"``, ``"AVX2"`` or ``"DEFAULT"``, the widest instruction set of the processor."""
    if cpu._is_avx512_supported():
        return "AVX512"
    return "AVX2" if cpu._is_avx2_supported() else "DEFAULT"
