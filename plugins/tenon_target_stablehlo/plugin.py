"""The plugin of the export target ``stablehlo``: models as StableHLO, the input of XLA and IREE."""

from collections.abc import Mapping

from tenon.extend import hookimpl


@hookimpl
def tenon_targets() -> Mapping[str, str]:
    """Provide the target."""
    return {"stablehlo": "tenon_target_stablehlo.target:StableHloTarget"}
