"""``tenon.nn``: modules, containers, parameters, layers. PyTorch's names.

To add a family of layers, write ``layers/<family>.py`` and add one import line below.
"""

from tenon.nn import init, modules, parallel, parameter, utils
from tenon.nn.containers import Container, ModuleDict, ModuleList, Sequential
from tenon.nn.module import Module
from tenon.nn.parameter import (
    Buffer,
    Parameter,
    UninitializedBuffer,
    UninitializedParameter,
)
from tenon.nn.parameter_containers import ParameterDict, ParameterList

__all__ = [
    "Buffer",
    "Container",
    "Module",
    "ModuleDict",
    "ModuleList",
    "Parameter",
    "ParameterDict",
    "ParameterList",
    "Sequential",
    "UninitializedBuffer",
    "UninitializedParameter",
    "init",
    "modules",
    "parallel",
    "parameter",
    "utils",
]
