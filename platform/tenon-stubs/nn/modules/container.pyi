# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.nn.containers import Container as Container
from tenon.nn.containers import ModuleDict as ModuleDict
from tenon.nn.containers import ModuleList as ModuleList
from tenon.nn.containers import Sequential as Sequential
from tenon.nn.parameter_containers import ParameterDict as ParameterDict
from tenon.nn.parameter_containers import ParameterList as ParameterList
