"""``torch.__future__``: switches for the conversion of module parameters."""

from __future__ import annotations


class _Settings:
    overwrite = False
    swap = False


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Choose whether ``module.to()`` and similar methods replace parameters by new objects.

    By default a parameter keeps its identity and its data is replaced, so that an optimizer created before
    the conversion still refers to it.
    """
    _Settings.overwrite = value


def get_overwrite_module_params_on_conversion() -> bool:
    """Return whether conversion replaces parameters by new objects; default False."""
    return _Settings.overwrite


def set_swap_module_params_on_conversion(value: bool) -> None:
    """Choose whether ``load_state_dict(assign=True)`` and conversion keep parameter objects by swapping.

    Subclasses of Tensor then determine their new content by ``module_load``. Without this, conversion by
    ``module.to()`` and similar methods also keeps parameter objects, except on the meta device.
    """
    _Settings.swap = value


def get_swap_module_params_on_conversion() -> bool:
    """Return whether assigning a state dict keeps the parameter objects; default False."""
    return _Settings.swap
