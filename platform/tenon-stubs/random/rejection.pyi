# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.distributions.rejection import binomial as binomial
from tenon.distributions.rejection import log_factorial as log_factorial
from tenon.distributions.rejection import log_standard_gamma as log_standard_gamma
from tenon.distributions.rejection import poisson as poisson
