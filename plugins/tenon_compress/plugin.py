"""The plugin of pruning methods, quantization schemes, the command ``tenon compress``, and the modules
``tenon.prune``, ``tenon.quantization`` and ``tenon.compress``; prunes runs configured with ``[prune]``.
"""

from collections.abc import Mapping

from tenon.extend import CommandTarget, hookimpl
from tenon_compress.training import (
    tenon_checkpoint_load,
    tenon_checkpoint_save,
    tenon_prepare_model,
    tenon_session_start,
    tenon_step_end,
)

__all__ = [
    "FORMER_NAMES",
    "tenon_checkpoint_load",
    "tenon_checkpoint_save",
    "tenon_commands",
    "tenon_namespaces",
    "tenon_prepare_model",
    "tenon_pruners",
    "tenon_quantizers",
    "tenon_session_start",
    "tenon_step_end",
]

_RENAMED = {
    "tenon.prune": {
        "atoms": "coupled_channels",
        "flow": "dependencies",
        "groups": "grouped_convolutions",
        "layers": "packed_linear",
        "packed": "packing",
        "products": "product_rules",
        "recurrent": "recurrent_rules",
        "rules": "op_rules",
        "shrinking": "parameter_slicing",
        "size_rules": "size_inference",
        "sizes": "shape_rules",
        "slice_rules": "slice_inference",
        "writes": "in_place_rules",
    },
    "tenon.quantization": {"flow": "call_graph", "names": "pytorch_names", "numbers": "integers"},
}
#: Names of version 0.1, which imports, pickles and checkpoints may still contain.
FORMER_NAMES = {
    "tenon_prune": "tenon.prune",
    "tenon_quantize": "tenon.quantization",
    "tenon.compress.structure": "tenon_compress.structure_buffer",
    "tenon.prune.trace": "tenon.export.tracing",
    **{
        f"{package}.{former}": f"{package}.{present}"
        for package, names in _RENAMED.items()
        for former, present in names.items()
    },
}

_PRUNERS = {
    "unstructured": ("CustomFromMask", "Identity", "L1Unstructured", "RandomUnstructured"),
    "structured": ("LnStructured", "NOfM", "RandomStructured"),
    "criteria": ("Gradient", "Magnitude", "Random", "Taylor", "Wanda"),
}
_OBSERVERS = ("MinMax", "PerChannelMinMax", "MovingAverage", "Histogram", "Entropy")
_SCHEMES = {
    "int8": "static:Int8",
    "int8-dynamic": "dynamic:Int8Dynamic",
    "int8-weights": "weights:Int8Weights",
    "int4-weights": "weights:Int4Weights",
    "bfloat16": "weights:BFloat16",
    "bfloat16-weights": "weights:BFloat16Weights",
}


@hookimpl
def tenon_namespaces() -> Mapping[str, str]:
    """Provide the public modules."""
    return {
        "prune": "tenon_compress.prune",
        "quantization": "tenon_compress.quantize",
        "compress": "tenon_compress.compressing",
    }


@hookimpl
def tenon_pruners() -> Mapping[str, str]:
    """Provide all pruning methods; each is a name of ``tenon.nn.utils.prune``."""
    return {
        name: f"tenon_compress.prune.{module}:{name}" for module, names in _PRUNERS.items() for name in names
    }


@hookimpl
def tenon_quantizers() -> Mapping[str, str]:
    """Provide schemes by the names that ``tenon.quantize`` takes, and observers by their class names."""
    return {
        **{name: f"tenon_compress.quantize.observers:{name}" for name in _OBSERVERS},
        **{name: f"tenon_compress.quantize.{target}" for name, target in _SCHEMES.items()},
    }


@hookimpl
def tenon_commands() -> Mapping[str, str]:
    """Provide the command ``tenon compress``."""
    summary = "Prune and quantize the model of a finished run, and report what that costs and gains."
    return {"compress": CommandTarget("tenon_compress.compressing.command:compress", summary=summary)}
