"""Declares the first-party quantization schemes."""

from collections.abc import Mapping

from tenon.extend import hookimpl


@hookimpl
def tenon_quantizers() -> Mapping[str, str]:
    """Schemes by the names that ``tenon.quantize`` takes."""
    return {
        "int8-dynamic": "tenon_quantize.dynamic:Int8Dynamic",
        "int8-weights": "tenon_quantize.weights:Int8Weights",
        "int4-weights": "tenon_quantize.weights:Int4Weights",
        "bfloat16-weights": "tenon_quantize.weights:BFloat16Weights",
    }
