"""PyTorch's path ``nn.modules.container``."""

from tenon.nn.containers import Container, ModuleDict, ModuleList, Sequential
from tenon.nn.parameter_containers import ParameterDict, ParameterList

__all__ = ["Container", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]
