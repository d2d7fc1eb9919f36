"""Errors of writing in place into tensors that do not allow it: inference tensors, one of several views."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import numpy as np

from tenon.engine import scopes
from tenon.errors import ArgumentError, GradError, ViewError

if TYPE_CHECKING:
    from tenon.engine.types import Array
    from tenon.engine.value import View


def refuse_writing() -> NoReturn:
    """Raise GradError: an inference tensor would be modified in place outside inference mode."""
    raise GradError(
        "Inplace update to inference tensor outside InferenceMode is not allowed. You can make a clone to get"
        " a normal tensor before doing inplace update."
    )


def refuse_part(view: View | None) -> None:
    """Raise ViewError if a tensor's ``_view`` is, or derives from, one of several outputs of one op."""
    while view is not None:
        if len(view) > 5:
            op, index = view[5]
            raise ViewError(
                f"Output {index} of {op.torch_name((), view[3])} is a view and is being modified inplace."
                " This view is the output of a function that returns multiple views. Such functions do not"
                " allow the output views to be modified inplace. You should replace the inplace operation by"
                " an out-of-place one."
            )
        view = view[1]._view


def refuse_read_only(raw: Array, name: str, error: Exception) -> None:
    """Raise ArgumentError from ``error`` if the memory of ``raw`` cannot be written to."""
    if isinstance(raw, np.ndarray) and not raw.flags.writeable:
        raise ArgumentError(
            f"{name}_: the memory of this tensor of shape {list(raw.shape)} is read-only{scopes.suffix()}. It"
            " is a read-only NumPy array, or a parameter that fully_shard has gathered into memory which the"
            " ranks of this host share. Work on a clone(), or change the parameter between steps: its shard,"
            " or the whole in summon_full_params."
        ) from error
