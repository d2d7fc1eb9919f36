"""Behaviours of modules that PyTorch lets one choose ahead of their becoming the default."""

from __future__ import annotations


class _Chosen:
    overwrite = False
    swap = False


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Whether ``module.to()`` and its kin put new parameters in place of the old ones.

    By default a parameter keeps its identity and its data is exchanged, so that an optimizer made
    before the conversion still holds it.
    """
    _Chosen.overwrite = value


def get_overwrite_module_params_on_conversion() -> bool:
    """Whether conversion puts new parameters in place of the old ones; default False."""
    return _Chosen.overwrite


def set_swap_module_params_on_conversion(value: bool) -> None:
    """Whether ``load_state_dict(assign=True)`` and conversion keep the parameters, with new contents in them.

    Subclasses of Tensor are then asked by ``module_load`` what to put in their place. Conversion by
    ``module.to()`` and its kin keeps parameters without this too, but for those on the meta device.
    """
    _Chosen.swap = value


def get_swap_module_params_on_conversion() -> bool:
    """Whether assigning a state dict keeps the identity of the parameters; default False."""
    return _Chosen.swap
