# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon_parametrizations.orthogonal import orthogonal as orthogonal
from tenon_parametrizations.spectral import spectral_norm as spectral_norm
from tenon_parametrizations.weight import weight_norm as weight_norm
