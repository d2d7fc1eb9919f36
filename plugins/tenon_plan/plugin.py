"""The plugin of the command ``tenon plan``."""

from __future__ import annotations

from tenon.extend import hookimpl


@hookimpl
def tenon_commands() -> dict[str, str]:
    """``tenon plan``."""
    return {"plan": "tenon_plan.plan.command:plan"}


@hookimpl
def tenon_namespaces() -> dict[str, str]:
    """The modules behind it."""
    return {"training.plan": "tenon_plan.plan"}
