"""Every hook that a plugin may implement.

A *declaring* hook maps names to targets ``"package.module:attribute"``, which are imported when a name is
resolved; the registry calls it once, at the first use of its kind. An *event* hook is called at load, build,
compile, session, step and checkpoint boundaries. No hook runs per operation: a hook call costs 2 to 3 µs, an
operation on small arrays less than 1 µs.

An implementation declares only those of the arguments that it needs. Modes: *collect* calls every
implementation, first of the plugins registered by hand, the latest first, then of discovered plugins in
plugin order (first-party first, then by name); *firstresult* stops at the first that does not return None;
*historic* is repeated for plugins that are registered later. ``hookimpl(tryfirst=True)``, ``(trylast=True)``
and ``(wrapper=True)`` are pluggy's.

The declaring hooks are in ``declarations.py``. Next: ``manager.py`` calls them.
``docs/guide/hooks.md`` has the same entries as a page.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from tenon.config import Config
from tenon.plugins.declarations import *  # noqa: F403 - every hook is found here
from tenon.plugins.declarations import KINDS as KINDS
from tenon.plugins.declarations import MODULES as MODULES
from tenon.plugins.declarations import PROJECT as PROJECT
from tenon.plugins.declarations import hookimpl as hookimpl
from tenon.plugins.declarations import hookspec as hookspec

if TYPE_CHECKING:
    from tenon.device import Device
    from tenon.distributed.communication.communicator import Communicator
    from tenon.graph.passes import Pass
    from tenon.nn.module import Module
    from tenon.optim.optimizer import Optimizer, ParamsT
    from tenon.profiler.observe.observer import Observer
    from tenon.training.session import Session


@hookspec(historic=True)
def tenon_configure(config: Config) -> None:
    """Read the process's settings; runs before any other hook of the plugin.

    Args: ``config``, frozen; ``config.setting("tiger_beta")`` reads TENON_TIGER_BETA.
    Called: once per plugin, when it is registered.
    Mode: historic.
    Example: ``state.beta = float(config.setting("tiger_beta", "0.9"))``
    """


@hookspec(firstresult=True)
def tenon_default_device(requested: str | None) -> Device | None:
    """The device to use when none is given; None leaves it to the next plugin, in the end the CPU.

    Args: ``requested``, what the configuration names (``TENON_DEVICE``), or None.
    Called: once per training run, before its model is built.
    Mode: firstresult.
    Example: ``return Device("cuda", local_rank())``
    """


@hookspec(firstresult=True)
def tenon_make_optimizer(name: str, params: ParamsT, options: Mapping[str, object]) -> Optimizer | None:
    """Build an optimizer. If no plugin does, the host calls ``resolve("optimizers", name)``.

    Args: ``name`` of the optimizer; ``params``, parameters or groups; ``options``, its keyword arguments.
    Called: once per optimizer built from configuration (``tenon.build_optimizer``, ``tenon train``).
    Mode: firstresult.
    Example: ``optimizer = yield; return Lookahead(optimizer)`` under ``hookimpl(wrapper=True)``
    """


@hookspec(firstresult=True)
def tenon_make_communicator(config: Config) -> Communicator | None:
    """Build this process's communicator; None leaves it to the next plugin, in the end to ``launch``.

    ``launch`` then takes ``config.communicator``, else "mpi" under a launcher, else a run of one rank.

    Args: ``config``; ``config.communicator`` is the name that the user requested, or None.
    Called: once per process, by ``tenon.distributed.processes.launch``.
    Mode: firstresult.
    Example: ``return Traced(MpiCommunicator()) if config.setting("tiger_trace") else None``
    """


@hookspec
def tenon_prepare_model(model: Module, session: Session) -> None:
    """Change the model in place before training: add hooks, stages, masks.

    Args: ``model`` on its device; ``session`` of the run.
    Called: once per run, before step 0 and before the parameters are handed to the optimizer.
    Mode: collect, in plugin order.
    Example: ``prune.attach(model, session.config)``
    """


@hookspec
def tenon_session_start(session: Session) -> None:
    """A training run begins; its folder, ranks, model and configuration are known.

    Args: ``session`` of the run.
    Called: once per run.
    Mode: collect.
    Example: ``writers[session] = SummaryWriter(session.folder)`` (tenon_tensorboard)
    """


@hookspec
def tenon_session_finish(session: Session, error: BaseException | None) -> None:
    """A training run has ended; release the resources that ``tenon_session_start`` acquired.

    Args: ``session`` of the run; ``error`` that ended it, or None.
    Called: once per run, also after an error.
    Mode: collect.
    Example: ``writers.pop(session).close()`` (tenon_tensorboard)
    """


@hookspec
def tenon_epoch_begin(session: Session, epoch: int) -> None:
    """An epoch of training begins, or goes on in a resumed run.

    Args: ``session``; ``epoch``, from 1.
    Called: once per epoch, before its first step.
    Mode: collect.
    Example: ``session.data.train.set_difficulty(epoch)``
    """


@hookspec
def tenon_epoch_end(session: Session, epoch: int, metrics: Mapping[str, float]) -> None:
    """An epoch is trained and evaluated; its checkpoint is about to be written.

    Args: ``session``, whose ``stop(reason)`` ends the run; ``epoch``, from 1; ``metrics``: test_loss, ...
    Called: once per complete epoch.
    Mode: collect.
    Example: ``if metrics["test_loss"] > worst: session.stop("it diverges")``
    """


@hookspec
def tenon_evaluation_begin(session: Session) -> None:
    """The test samples are about to be evaluated; the model is still in training mode.

    Args: ``session`` of the run.
    Called: once per evaluation, after each epoch.
    Mode: collect.
    Example: ``averages.swap(session.model)``
    """


@hookspec
def tenon_evaluation_end(session: Session, metrics: MutableMapping[str, float]) -> None:
    """The test samples are evaluated. Numbers that are added to ``metrics`` are recorded with the others.

    Args: ``session``; ``metrics``: loss, and accuracy of classifiers, the same on all ranks.
    Called: once per evaluation that did not raise.
    Mode: collect.
    Example: ``metrics["f1"] = f1.compute()``
    """


@hookspec
def tenon_gradients_ready(session: Session, step: int) -> None:
    """The gradients of a step are summed over the ranks, and not clipped yet; they may be changed in place.

    Args: ``session``, with the gradients in ``session.model.parameters()``; ``step``, from 0.
    Called: once per training step, before the optimizer's.
    Mode: collect.
    Example: ``for p in session.model.parameters(): p.grad.add_(noise(p))``
    """


@hookspec
def tenon_step_begin(session: Session, step: int) -> None:
    """A training step begins; its batch is on the device.

    Args: ``session``; ``step``, counted from 0 over the whole run.
    Called: once per training step.
    Mode: collect.
    Example: ``clock.start(step)``
    """


@hookspec
def tenon_step_end(session: Session, step: int, metrics: Mapping[str, float]) -> None:
    """A training step is done; the parameters are updated.

    Args: ``session``, whose ``stop(reason)`` ends the run; ``step``; ``metrics``: train_loss, lr and epoch.
    Called: once per training step.
    Mode: collect.
    Example: ``clock.stop(step)``
    """


@hookspec
def tenon_open_observers(session: Session | None) -> Sequence[Observer]:
    """Observers to attach while a profile is open.

    Args: ``session`` of the run, or None outside one.
    Called: once per opened profile.
    Mode: collect.
    Example: ``return [FlopCounter()]``
    """
    raise NotImplementedError


@hookspec
def tenon_graph_passes(target: str) -> Sequence[Pass]:
    """Graph passes to run between the built-in simplifications and fusion.

    Args: ``target``, name of the backend that the graph is compiled for.
    Called: once per compilation.
    Mode: collect.
    Example: ``return [FoldBatchNorm()] if target == "cpu" else []``
    """
    raise NotImplementedError


@hookspec
def tenon_report(metrics: Mapping[str, float], step: int) -> None:
    """Receive the metrics of a run, as Python numbers, for example to write them to a log.

    Args: ``metrics`` by name; ``step`` they belong to.
    Called: once per log interval, on rank 0.
    Mode: collect.
    Example: ``writer.add_scalar("loss", metrics["loss"], step)`` (tenon_tensorboard)
    """


@hookspec
def tenon_checkpoint_save(section: MutableMapping[str, object], session: Session) -> None:
    """Write this plugin's state into the checkpoint.

    Args: ``section``, an empty dict that is this plugin's own; ``session`` of the run.
    Called: once per checkpoint, through ``Host.save_sections``.
    Mode: collect, each plugin with a section of its own.
    Example: ``section["beta"] = state.beta``
    """


#: What a plugin saved: values of any type by name.
Section: TypeAlias = Mapping[str, Any]


@hookspec
def tenon_checkpoint_load(section: Section, session: Session) -> None:
    """Restore this plugin's state from the checkpoint that a run resumes.

    Args: ``section``, the data that this plugin saved, empty if it saved nothing; ``session`` of the run.
    Called: once per resumed run, after model and optimizer are restored, through ``Host.load_sections``.
    Mode: collect, each plugin with a section of its own.
    Example: ``state.beta = section.get("beta", 0.9)``
    """
