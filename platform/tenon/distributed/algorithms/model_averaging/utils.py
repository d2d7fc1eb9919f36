"""torch's path; the code is in ``tenon.distributed.local_sgd``."""

from tenon.distributed.local_sgd import (
    average_parameters,
    average_parameters_or_parameter_groups,
    get_params_to_average,
)

__all__ = ["average_parameters", "average_parameters_or_parameter_groups", "get_params_to_average"]
