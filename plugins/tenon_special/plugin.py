"""The plugin of the functions of ``tenon.special`` that networks rarely use, with their ops."""

from __future__ import annotations

from tenon.extend import hookimpl

_CYLINDER = (
    "airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 modified_bessel_k0 modified_bessel_k1"
    " scaled_modified_bessel_k0 scaled_modified_bessel_k1"
)
_POLYNOMIALS = (
    "chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w"
    " hermite_polynomial_h hermite_polynomial_he laguerre_polynomial_l legendre_polynomial_p"
    " shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v"
    " shifted_chebyshev_polynomial_w"
)
_OTHERS = f"{_CYLINDER} erfcx log_ndtr modified_bessel_i0 modified_bessel_i1 spherical_bessel_j0 zeta"


@hookimpl
def tenon_ops() -> dict[str, str]:
    """Provide the ops that are not compositions of others."""
    cylinder = {name: f"tenon_special.cylinder:{name}" for name in _CYLINDER.split()}
    return {**cylinder, "erfcx": "tenon_special.erfcx:erfcx"}


@hookimpl
def tenon_special_functions() -> dict[str, str]:
    """Provide PyTorch's names in ``torch.special``."""
    return {
        **{name: f"tenon_special.functions:{name}" for name in _OTHERS.split()},
        **{name: f"tenon_special.polynomials:{name}" for name in _POLYNOMIALS.split()},
    }


@hookimpl
def tenon_samples() -> dict[str, str]:
    """Provide inputs and references to test the ops."""
    return {"special": "tenon_special.samples"}
