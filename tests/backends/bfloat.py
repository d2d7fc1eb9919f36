"""bfloat16 on oneDNN: it has kernels for processors with AVX-512 only; elsewhere NumPy computes."""

import ml_dtypes
import numpy as np
import pytest

from tenon_cpu.onednn.prepared_matmul import PREPARE
from tenon_cpu.onednn.runtime import available

BFLOAT = np.dtype(ml_dtypes.bfloat16)


def _multiplied() -> bool:
    eye = np.eye(48, dtype=BFLOAT)
    return PREPARE["matmul"]((eye, eye), {}, (np.empty_like(eye),)) is not None


#: For tests of what oneDNN itself makes of bfloat16.
in_bfloat = pytest.mark.skipif(
    bool(available()) and not _multiplied(), reason="oneDNN has no bfloat16 kernels for this processor"
)
FLOATS = (np.float32, pytest.param(BFLOAT, marks=in_bfloat))
