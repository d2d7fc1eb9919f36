"""PyTorch's ``assert_close`` and ``make_tensor``, and conformance suites for plugins."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tenon.compat.finder import is_second_name
from tenon.testing.comparison import assert_allclose, assert_close
from tenon.testing.creation import make_tensor

if TYPE_CHECKING:
    from tenon.testing.suites.backend import BackendSuite as BackendSuite
    from tenon.testing.suites.communicator import CommunicatorSuite as CommunicatorSuite
    from tenon.testing.suites.optimizer import OptimizerSuite as OptimizerSuite
    from tenon.testing.suites.parametrization import ParametrizationSuite as ParametrizationSuite
    from tenon.testing.suites.plugin import PluginSuite as PluginSuite
    from tenon.testing.suites.pruner import PrunerSuite as PrunerSuite
    from tenon.testing.suites.recipe import RecipeSuite as RecipeSuite
    from tenon.testing.suites.scheduler import SchedulerSuite as SchedulerSuite
    from tenon.testing.suites.target import TargetSuite as TargetSuite

#: Suites import pytest, so they are imported at their first use.
_SUITES = {
    "BackendSuite": "backend",
    "CommunicatorSuite": "communicator",
    "OptimizerSuite": "optimizer",
    "ParametrizationSuite": "parametrization",
    "PluginSuite": "plugin",
    "PrunerSuite": "pruner",
    "RecipeSuite": "recipe",
    "SchedulerSuite": "scheduler",
    "TargetSuite": "target",
}

__all__ = [
    "BackendSuite",
    "CommunicatorSuite",
    "OptimizerSuite",
    "ParametrizationSuite",
    "PluginSuite",
    "PrunerSuite",
    "RecipeSuite",
    "SchedulerSuite",
    "TargetSuite",
    "assert_allclose",
    "assert_close",
    "make_tensor",
]


def __getattr__(name: str) -> Any:  # a suite, or a module under a second name
    if is_second_name(f"{__name__}.{name}"):
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _SUITES:
        raise AttributeError(f"tenon.testing has no {name!r}; it offers {', '.join(__all__)}.")
    try:
        suite = getattr(importlib.import_module(f"tenon.testing.suites.{_SUITES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name != "pytest":
            raise
        raise ImportError(
            f"tenon.testing.{name} needs pytest: pip install 'tenon-platform[testing]'."
        ) from None
    globals()[name] = suite
    return suite
