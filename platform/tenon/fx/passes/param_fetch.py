"""Extract the parameters and options of standard layers for a backend, and attach them to nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon import nn
from tenon.fx.graph_module import GraphModule

__all__ = ["default_matching", "extract_attrs_for_lowering", "lift_lowering_attrs_to_nodes"]

_CONVOLUTION = ["weight", "bias", "kernel_size", "stride", "padding", "dilation", "groups", "padding_mode"]


def default_matching(name: str, target_version: int) -> str:
    """Return ``name``: attributes have the same name in all versions of a class."""
    return name


#: Class -> the version of its attributes, their names, and the function that maps a name to another version.
module_fetch_book: dict[type, tuple[int, list[str], Callable[[str, int], str]]] = {
    nn.Linear: (1, ["weight", "bias"], default_matching),
    nn.Conv2d: (1, _CONVOLUTION, default_matching),
    nn.BatchNorm2d: (2, ["weight", "bias", "running_mean", "running_var", "eps"], default_matching),
    nn.AdaptiveAvgPool2d: (1, [], default_matching),
    nn.MaxPool2d: (
        1,
        ["kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode"],
        default_matching,
    ),
    nn.ReLU: (1, ["inplace"], default_matching),
}


def extract_attrs_for_lowering(mod: nn.Module) -> dict[str, Any]:  # values of any type
    """Return the attributes of a standard layer by name, with ``name``, its class in PyTorch.

    RuntimeError for a class that is not in ``module_fetch_book``.
    """
    kind = type(mod)
    if kind not in module_fetch_book:
        raise RuntimeError(
            f"{kind.__name__} is not a standard layer whose attributes are known: only"
            f" {', '.join(c.__name__ for c in module_fetch_book)} are. Add it to module_fetch_book."
        )
    version, attributes, matching = module_fetch_book[kind]
    present = getattr(mod, "_version", 1) or 1
    if present < version:
        raise RuntimeError(f"Fetcher version {version} tries to fetch {kind.__name__} of version {present}.")
    result: dict[str, Any] = {"name": _torch_name(kind)}  # values of any type
    result.update((name, getattr(mod, matching(name, present))) for name in attributes)
    return result


def _torch_name(kind: type) -> str:
    """Return the class's path in PyTorch."""
    submodules = {
        "Linear": "linear",
        "Conv2d": "conv",
        "BatchNorm2d": "batchnorm",
        "AdaptiveAvgPool2d": "pooling",
        "MaxPool2d": "pooling",
        "ReLU": "activation",
    }
    submodule = submodules.get(kind.__name__)
    return (
        f"torch.nn.modules.{submodule}.{kind.__name__}" if submodule else f"{kind.__module__}.{kind.__name__}"
    )


def lift_lowering_attrs_to_nodes(fx_module: GraphModule) -> None:
    """Set ``attrs_for_lowering`` of each node that calls a layer to the layer's attributes, also in
    submodules."""
    submodules = dict(fx_module.named_modules())
    for node in fx_module.graph.nodes:
        if node.op != "call_module":
            continue
        module = submodules[str(node.target)]
        if isinstance(module, GraphModule):
            lift_lowering_attrs_to_nodes(module)
        else:
            read: Any = node  # any attribute may be set
            read.attrs_for_lowering = extract_attrs_for_lowering(module)
