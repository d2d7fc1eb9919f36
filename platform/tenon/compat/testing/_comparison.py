"""PyTorch's module ``torch.testing._comparison``: classes of pairs, from which test suites derive their
own."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from tenon.tensors.tensor import Tensor
from tenon.testing.comparison import assert_allclose, assert_close, not_close_error_metas, originate_pairs
from tenon.testing.mismatches import Identifier, default_tolerances, scalar_text, tensor_text
from tenon.testing.pairs import (
    BooleanPair,
    ErrorMeta,
    NonePair,
    NumberPair,
    ObjectPair,
    Pair,
    TensorLikePair,
    UnsupportedInputs,
    get_tolerances,
)

__all__ = [
    "BooleanPair",
    "ErrorMeta",
    "NonePair",
    "NumberPair",
    "ObjectPair",
    "Pair",
    "TensorLikePair",
    "UnsupportedInputs",
    "assert_allclose",
    "assert_close",
    "default_tolerances",
    "get_tolerances",
    "make_scalar_mismatch_msg",
    "make_tensor_mismatch_msg",
    "not_close_error_metas",
    "originate_pairs",
]


T = TypeVar("T")


def make_scalar_mismatch_msg(
    actual: complex, expected: complex, *, rtol: float, atol: float, identifier: Identifier = None
) -> str:
    """Return the message about two numbers that differ."""
    return scalar_text(actual, expected, rtol, atol, identifier)


def make_tensor_mismatch_msg(
    actual: Tensor,
    expected: Tensor,
    matches: Tensor,
    *,
    rtol: float,
    atol: float,
    identifier: Identifier = None,
) -> str:
    """Return the message about two tensors: how many elements differ, and the largest differences."""
    with np.errstate(all="ignore"):
        a, e, matching = (each.detach().cpu().numpy() for each in (actual, expected, matches))
        return tensor_text(a, e, matching, rtol, atol, identifier)


def _unwrap_dtensor_for_comparison(actual: T, expected: T) -> tuple[T, T]:
    """Return both unchanged: there are no distributed tensors here."""
    return actual, expected
