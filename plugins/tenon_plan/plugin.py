"""The plugin of the command ``tenon plan``."""

from __future__ import annotations

from tenon.extend import CommandTarget, hookimpl

#: Names of version 0.1, which imports may still contain.
FORMER_NAMES = {"tenon.training.plan.notes": "tenon.training.plan.recorded_calls"}


@hookimpl
def tenon_commands() -> dict[str, str]:
    """Provide the command ``tenon plan``."""
    summary = "Predict bytes, memory and time of a run on many ranks."
    return {"plan": CommandTarget("tenon_plan.plan.command:plan", summary=summary)}


@hookimpl
def tenon_namespaces() -> dict[str, str]:
    """Provide the module that implements it."""
    return {"training.plan": "tenon_plan.plan"}
