"""Declares the first-party pruning methods, by PyTorch's names, and prunes runs that ask for it."""

from collections.abc import Mapping

from tenon.extend import hookimpl
from tenon_prune.hooks import (
    tenon_checkpoint_load,
    tenon_checkpoint_save,
    tenon_prepare_model,
    tenon_session_start,
    tenon_step_end,
)

__all__ = [
    "tenon_checkpoint_load",
    "tenon_checkpoint_save",
    "tenon_prepare_model",
    "tenon_pruners",
    "tenon_session_start",
    "tenon_step_end",
]

_METHODS = {
    "unstructured": ("CustomFromMask", "Identity", "L1Unstructured", "RandomUnstructured"),
    "structured": ("LnStructured", "NOfM", "RandomStructured"),
    "criteria": ("Gradient", "Magnitude", "Random", "Taylor"),
}


@hookimpl
def tenon_pruners() -> Mapping[str, str]:
    """All pruning methods; each is a name of ``tenon.nn.utils.prune``."""
    return {name: f"tenon_prune.{module}:{name}" for module, names in _METHODS.items() for name in names}
