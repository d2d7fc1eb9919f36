"""The declaring hooks: names of the components of a plugin, and their targets.

Each maps names to targets, which are imported when a name is resolved. Also the kinds of components, and the
markers of hooks. Next: ``hookspecs.py`` has the event hooks.
"""

from __future__ import annotations

from collections.abc import Mapping

import pluggy

PROJECT = "tenon"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)

KINDS: Mapping[str, str] = {
    "backends": "backend",
    "optimizers": "optimizer",
    "schedulers": "scheduler",
    "parametrizations": "parametrization",
    "pruners": "pruner",
    "quantizers": "quantizer",
    "observers": "observer",
    "communicators": "communicator",
    "comm_hooks": "communication hook",
    "targets": "export target",
    "ops": "op",
    "recipes": "recipe",
    "commands": "command",
    "sections": "configuration section",
    "profilers": "profiler",
    "namespaces": "namespace",
    "special_functions": "special function",
    "samples": "module of samples",
}
"""Kinds of components and their singular; the declaring hook of a kind is ``tenon_<kind>``."""

MODULES = frozenset({"namespaces", "samples"})
"""Kinds whose targets are modules: ``"package.module"``, without an attribute."""


class CommandTarget(str):
    """The target of a command, with its line in ``tenon --help``, which imports no target.

    >>> CommandTarget("tenon_bench.command:bench", summary="Measure a model.").summary
    'Measure a model.'
    """

    __slots__ = ("summary",)

    summary: str

    def __new__(cls, target: str, *, summary: str) -> CommandTarget:
        """``target`` is ``"package.module:attribute"``."""
        self = super().__new__(cls, target)
        self.summary = summary
        return self


@hookspec
def tenon_backends() -> Mapping[str, str]:
    """Device type -> target of a ``tenon.extend.Backend`` subclass, made without arguments.

    Called: at the first use of the kind, when a device is named.
    Mode: collect.
    Example: ``return {"cuda": "tenon_cuda.backend:CudaBackend"}`` (tenon_cuda)
    """
    raise NotImplementedError


@hookspec
def tenon_optimizers() -> Mapping[str, str]:
    """Class name -> target of a ``tenon.extend.Optimizer`` subclass; becomes ``tenon.optim.<name>``.

    Called: at the first use of the kind, when a name of ``tenon.optim`` is looked up.
    Mode: collect.
    Example: ``return {"Tiger": "tenon_tiger.tiger:Tiger"}`` (first party: tenon_optimizers)
    """
    raise NotImplementedError


@hookspec
def tenon_schedulers() -> Mapping[str, str]:
    """Class name -> target of a ``tenon.extend.LRScheduler`` subclass; ``tenon.optim.lr_scheduler.<name>``.

    Called: at the first use of the kind, when a name of ``tenon.optim.lr_scheduler`` is looked up.
    Mode: collect.
    Example: ``return {"StepLR": "tenon_optimizers.schedules:StepLR"}`` (tenon_optimizers)
    """
    raise NotImplementedError


@hookspec
def tenon_parametrizations() -> Mapping[str, str]:
    """Name -> target of a function that reparametrizes a weight: ``attach(module, name="weight", ...)``.

    Called: at the first use of the kind, by ``tenon.nn.utils.parametrizations``.
    Mode: collect.
    Example: ``return {"weight_norm": "tenon_parametrizations.weight:weight_norm"}``
    """
    raise NotImplementedError


@hookspec
def tenon_pruners() -> Mapping[str, str]:
    """Name -> target of a ``tenon.extend.BasePruningMethod`` subclass, which selects the elements to keep.

    Called: at the first use of the kind, by ``tenon.nn.utils.prune``.
    Mode: collect.
    Example: ``return {"LnStructured": "tenon_compress.prune.structured:LnStructured"}``
    """
    raise NotImplementedError


@hookspec
def tenon_quantizers() -> Mapping[str, str]:
    """Name -> target of a scheme that maps weights and activations to few bits.

    Called: at the first use of the kind, when a scheme is named.
    Mode: collect.
    Example: ``return {"int8": "tenon_compress.quantize.static:Int8"}``
    """
    raise NotImplementedError


@hookspec
def tenon_observers() -> Mapping[str, str]:
    """Name -> target of an observer class, which receives the measurements of a run or a script.

    Called: at the first use of the kind, as ``tenon.utils.tensorboard.SummaryWriter``.
    Mode: collect.
    Example: ``return {"SummaryWriter": "tenon_tensorboard.summary_writer:SummaryWriter"}``
    """
    raise NotImplementedError


@hookspec
def tenon_communicators() -> Mapping[str, str]:
    """Name -> target of a ``tenon.extend.Communicator`` class.

    Called: at the first use of the kind, by ``tenon.distributed``.
    Mode: collect.
    Example: ``return {"mpi": "tenon_mpi.communicator:MpiCommunicator"}`` (tenon_mpi)
    """
    raise NotImplementedError


@hookspec
def tenon_comm_hooks() -> Mapping[str, str]:
    """Name -> target of a function ``hook(state, bucket)`` that reduces a bucket of gradients over the ranks.

    Called: at the first use of the kind, by ``DistributedDataParallel.register_comm_hook(state, name)``.
    Mode: collect.
    Example: ``return {"top_k": "tenon_top_k.hook:top_k_hook"}``
    """
    raise NotImplementedError


@hookspec
def tenon_targets() -> Mapping[str, str]:
    """Name -> target of a ``tenon.extend.Target`` subclass, which writes captured graphs for other machines.

    Called: at the first use of the kind, when ``tenon export --to`` or ``tenon.export`` names one.
    Mode: collect.
    Example: ``return {"c": "tenon_target_c.target:CTarget"}``
    """
    raise NotImplementedError


@hookspec
def tenon_ops() -> Mapping[str, str]:
    """Op name -> target of a ``tenon.extend.Op`` instance; becomes ``tenon.ops.<name>``.

    Called: at the first use of the kind, when a name is looked up that ``tenon.ops`` itself does not have.
    Mode: collect.
    Example: ``return {"softcap": "tenon_softcap.op:softcap"}``
    """
    raise NotImplementedError


@hookspec
def tenon_recipes() -> Mapping[str, str]:
    """Name -> target of a recipe: a model, its data and defaults, run by ``tenon train NAME``.

    Called: at the first use of the kind, by ``tenon train``.
    Mode: collect.
    Example: ``return {"digits": "tenon_recipes.digits:recipe"}`` (tenon_recipes)
    """
    raise NotImplementedError


@hookspec
def tenon_commands() -> Mapping[str, str]:
    """Command name -> target of a ``click.Command``; becomes ``tenon <name>``.

    A ``tenon.extend.CommandTarget`` has a summary in addition to the target, for ``tenon --help``.

    Called: at the first use of the kind, when the command line names no built-in command.
    Mode: collect.
    Example: ``return {"bench": "tenon_bench.command:bench"}``
    """
    raise NotImplementedError


@hookspec
def tenon_sections() -> Mapping[str, str]:
    """Name -> target of a ``tenon.extend.Section`` subclass: ``[plugins.<name>]`` of ``tenon train``.

    Called: at the first use of the kind, when a configuration has a section of a plugin.
    Mode: collect.
    Example: ``return {"early_stopping": "tenon_early_stopping.section:EarlyStopping"}``
    """
    raise NotImplementedError


@hookspec
def tenon_profilers() -> Mapping[str, str]:
    """Name -> target of a class or function; becomes ``tenon.profiler.<name>``.

    Called: at the first use of the kind, when a name of ``tenon.profiler`` is looked up.
    Mode: collect.
    Example: ``return {"profile": "tenon_profiler.profile:profile"}`` (tenon_profiler)
    """
    raise NotImplementedError


@hookspec
def tenon_namespaces() -> Mapping[str, str]:
    """Name -> the package of the plugin that is imported as ``tenon.<name>``, with the modules below it.

    Called: at the first use of the kind, when tenon has no file for ``import tenon.<name>``.
    Mode: collect.
    Example: ``return {"zoo": "tenon_zoo.animals"}``
    """
    raise NotImplementedError


@hookspec
def tenon_special_functions() -> Mapping[str, str]:
    """Name -> target of a function of tensors; becomes ``tenon.special.<name>``.

    Called: at the first use of the kind, when a name of ``tenon.special`` is looked up.
    Mode: collect.
    Example: ``return {"airy_ai": "tenon_special.functions:airy_ai"}`` (tenon_special)
    """
    raise NotImplementedError


@hookspec
def tenon_samples() -> Mapping[str, str]:
    """Any name -> target of a module that adds samples of the plugin's ops by ``tenon.testing.samples.add``.

    Called: at the first use of the kind, when samples are requested of ``tenon.testing.samples``.
    Mode: collect.
    Example: ``return {"special": "tenon_special.samples"}`` (tenon_special)
    """
    raise NotImplementedError
