"""torch's ``torch.backends.cpu``: how wide the processor's vectors are."""

from tenon.compat import cpu

__all__ = ["get_cpu_capability"]


def get_cpu_capability() -> str:
    """``"AVX512"``, ``"AVX2"`` or ``"DEFAULT"``, by what the processor has."""
    if cpu._is_avx512_supported():
        return "AVX512"
    return "AVX2" if cpu._is_avx2_supported() else "DEFAULT"
