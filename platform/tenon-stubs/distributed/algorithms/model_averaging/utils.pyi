# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.distributed.local_sgd import average_parameters as average_parameters
from tenon.distributed.local_sgd import average_parameters_or_parameter_groups as average_parameters_or_parameter_groups
from tenon.distributed.local_sgd import get_params_to_average as get_params_to_average
