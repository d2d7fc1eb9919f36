"""Declares the first-party quantization schemes and observers."""

from collections.abc import Mapping

from tenon.extend import hookimpl


@hookimpl
def tenon_quantizers() -> Mapping[str, str]:
    """Schemes by the names that ``tenon.quantize`` takes, observers by their classes'."""
    observers = ("MinMax", "PerChannelMinMax", "MovingAverage", "Histogram", "Entropy")
    return {
        **{name: f"tenon_quantize.observers:{name}" for name in observers},
        "int8": "tenon_quantize.static:Int8",
        "int8-dynamic": "tenon_quantize.dynamic:Int8Dynamic",
        "int8-weights": "tenon_quantize.weights:Int8Weights",
        "int4-weights": "tenon_quantize.weights:Int4Weights",
        "bfloat16": "tenon_quantize.weights:BFloat16",
        "bfloat16-weights": "tenon_quantize.weights:BFloat16Weights",
    }
