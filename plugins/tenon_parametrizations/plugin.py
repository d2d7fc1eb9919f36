"""Declares the first-party parametrizations, by PyTorch's names."""

from collections.abc import Mapping

from tenon.extend import hookimpl


@hookimpl
def tenon_parametrizations() -> Mapping[str, str]:
    """Return the functions that appear in ``tenon.nn.utils.parametrizations``."""
    return {
        "orthogonal": "tenon_parametrizations.orthogonal:orthogonal",
        "spectral_norm": "tenon_parametrizations.spectral:spectral_norm",
        "weight_norm": "tenon_parametrizations.weight:weight_norm",
    }
