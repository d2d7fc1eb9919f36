"""The plugin of the export target ``c``: models and training steps as C99."""

from collections.abc import Mapping

from tenon.extend import hookimpl


@hookimpl
def tenon_targets() -> Mapping[str, str]:
    """Provide the target."""
    return {"c": "tenon_target_c.target:CTarget"}
