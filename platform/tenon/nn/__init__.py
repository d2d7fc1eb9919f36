"""``tenon.nn``: modules, containers, parameters and layers, under PyTorch's names.

To add a layer, write its class in ``layers/<family>.py`` and list it in that file's ``__all__``. A new family
also needs its line in ``layers/__init__.py``.
"""

from typing import TYPE_CHECKING

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
if not TYPE_CHECKING:  # type checkers follow starred imports by themselves
    __all__ += layers.__all__
