"""Errors of writing in place into tensors that do not allow it: inference tensors, one of several views."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from tenon.errors import GradError, ViewError

if TYPE_CHECKING:
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
