"""``tenon.nn``: modules, containers, parameters, layers. PyTorch's names.

To add a family of layers, write ``layers/<family>.py`` and add it to ``layers/__init__.py``: everything in
that package's ``__all__`` is offered here.
"""

from tenon.nn import attention, functional, grad, init, layers, modules, parallel, parameter, utils
from tenon.nn.containers import Container, ModuleDict, ModuleList, Sequential
from tenon.nn.layers import *  # noqa: F403 - the one place where layers become public
from tenon.nn.module import Module
from tenon.nn.parallel import DataParallel
from tenon.nn.parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter
from tenon.nn.parameter_containers import ParameterDict, ParameterList

__all__ = [
    "Buffer",
    "Container",
    "DataParallel",
    "Module",
    "ModuleDict",
    "ModuleList",
    "Parameter",
    "ParameterDict",
    "ParameterList",
    "Sequential",
    "UninitializedBuffer",
    "UninitializedParameter",
    "attention",
    "functional",
    "grad",
    "init",
    "modules",
    "parallel",
    "parameter",
    "utils",
]
__all__ += layers.__all__
