"""The building blocks of a training run, for plugins with commands of their own: ``tenon.extend.run_parts``.

``resolve`` creates a configuration from command-line arguments, ``resolve_config`` from layers of sections;
``open_session`` builds the model, data and optimizer, ``run`` trains, ``evaluate`` measures.
"""

from tenon.training.command import refuse, resolve
from tenon.training.config import RunConfig
from tenon.training.config import resolve as resolve_config
from tenon.training.launching.hosts import find_launcher
from tenon.training.loop import open_session, run
from tenon.training.parallel.build import division_check, mesh_sizes
from tenon.training.recipe import recipe_named
from tenon.training.step import autocasting, evaluate, local_step, share, to_device, unpack
from tenon.training.terminal import Screen

__all__ = [
    "RunConfig",
    "Screen",
    "autocasting",
    "division_check",
    "evaluate",
    "find_launcher",
    "local_step",
    "mesh_sizes",
    "open_session",
    "recipe_named",
    "refuse",
    "resolve",
    "resolve_config",
    "run",
    "share",
    "to_device",
    "unpack",
]
