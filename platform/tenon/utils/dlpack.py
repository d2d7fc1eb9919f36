"""``torch.utils.dlpack``: memory shared with other libraries."""

from tenon.functions.making import from_dlpack, to_dlpack

__all__ = ["from_dlpack", "to_dlpack"]
