"""The plugin of the export target ``numpy``: models and training steps as one Python file."""

from collections.abc import Mapping

from tenon.extend import hookimpl


@hookimpl
def tenon_targets() -> Mapping[str, str]:
    """Provide the target."""
    return {"numpy": "tenon_target_numpy.target:NumpyTarget"}
