# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.ops import airy_ai as airy_ai
from tenon.ops import bessel_j0 as bessel_j0
from tenon.ops import bessel_j1 as bessel_j1
from tenon.ops import bessel_y0 as bessel_y0
from tenon.ops import bessel_y1 as bessel_y1
from tenon.ops import modified_bessel_k0 as modified_bessel_k0
from tenon.ops import modified_bessel_k1 as modified_bessel_k1
from tenon.ops import scaled_modified_bessel_k0 as scaled_modified_bessel_k0
from tenon.ops import scaled_modified_bessel_k1 as scaled_modified_bessel_k1
