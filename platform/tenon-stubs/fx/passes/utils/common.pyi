# Written by `tenon stubs`; do not edit.
# ruff: noqa: E501, I001, RUF100
# fmt: off

from tenon.fx.passes.utils.matcher_utils import compare_graphs as compare_graphs
from tenon.fx.passes.utils.submodule_lift import HolderModule as HolderModule
from tenon.fx.passes.utils.submodule_lift import lift_subgraph_as_module as lift_subgraph_as_module
