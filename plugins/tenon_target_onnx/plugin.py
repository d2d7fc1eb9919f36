"""The plugin of the export target ``onnx``: models in the Open Neural Network Exchange format."""

from collections.abc import Mapping

from tenon.extend import hookimpl


@hookimpl
def tenon_targets() -> Mapping[str, str]:
    """Provide the target."""
    return {"onnx": "tenon_target_onnx.target:OnnxTarget"}
