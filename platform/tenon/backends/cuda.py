"""torch's ``torch.backends.cuda``: whether CUDA is there, and how exact float32 products have to be."""

from __future__ import annotations

from tenon import cuda
from tenon.functions.settings import get_float32_matmul_precision, set_float32_matmul_precision

__all__ = ["is_built", "matmul"]


def is_built() -> bool:
    """Whether there is a backend for CUDA here that can be used."""
    return cuda.is_available()


class _Products:
    """The type of ``matmul``."""

    @property
    def allow_tf32(self) -> bool:
        """Whether float32 products may use fewer bits, as by ``set_float32_matmul_precision``."""
        return get_float32_matmul_precision() != "highest"

    @allow_tf32.setter
    def allow_tf32(self, allowed: bool) -> None:
        set_float32_matmul_precision("high" if allowed else "highest")


#: Settings of matrix products.
matmul = _Products()
