"""The plugin that provides ``tenon.distributions`` and ``tenon.quasirandom``."""

from __future__ import annotations

from tenon.extend import hookimpl


@hookimpl
def tenon_namespaces() -> dict[str, str]:
    """Provide ``torch.distributions`` and ``torch.quasirandom``."""
    return {
        "distributions": "tenon_distributions.distributions",
        "quasirandom": "tenon_distributions.quasirandom",
    }
