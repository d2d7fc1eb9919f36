"""PyTorch's ``nn.utils``."""

from tenon.nn.utils import convert_parameters, init, stateless
from tenon.nn.utils.convert_parameters import parameters_to_vector, vector_to_parameters
from tenon.nn.utils.init import skip_init

__all__ = [
    "convert_parameters",
    "init",
    "parameters_to_vector",
    "skip_init",
    "stateless",
    "vector_to_parameters",
]
