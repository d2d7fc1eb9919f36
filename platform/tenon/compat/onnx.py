"""PyTorch's ``torch.onnx``: export is not supported; queries whether a model is being exported return
False."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from tenon.errors import UnsupportedError

__all__ = [
    "export",
    "is_in_onnx_export",
    "register_custom_op_symbolic",
    "unregister_custom_op_symbolic",
]


def is_in_onnx_export() -> bool:
    """Return False: nothing is exported."""
    return False


def _refused(name: str) -> Callable[..., NoReturn]:
    def refuse(*args: object, **options: object) -> NoReturn:
        raise UnsupportedError(
            f"torch.onnx.{name}: models are not written as ONNX here. Save the state_dict with tenon.save "
            "and load it in PyTorch, which reads it, to export the model from there."
        )

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = "Raise UnsupportedError: models are not written as ONNX here."
    return refuse


export = _refused("export")
register_custom_op_symbolic = _refused("register_custom_op_symbolic")
unregister_custom_op_symbolic = _refused("unregister_custom_op_symbolic")
