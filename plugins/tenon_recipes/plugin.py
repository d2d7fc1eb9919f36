"""The plugin of the recipes that come with tenon."""

from collections.abc import Mapping

from tenon.extend import hookimpl


@hookimpl
def tenon_recipes() -> Mapping[str, str]:
    """Provide `digits`: a convolutional net on 1,797 real handwritten digits."""
    return {"digits": "tenon_recipes.digits:RECIPE"}
