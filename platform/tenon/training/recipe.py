"""Resolve the names in a configuration (recipes, ``module:name`` targets) and build the objects that they
refer to."""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.util
import inspect
import sys
import sysconfig
import traceback
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from pydantic import PydanticSchemaGenerationError, TypeAdapter, ValidationError

from tenon.data.dataset import Splits, as_splits
from tenon.distributed.replicas.accumulation import Loss
from tenon.errors import ConfigError, DataError, PluginNotFoundError, PluginTargetError
from tenon.nn import functional
from tenon.nn.module import Module
from tenon.nn.parameter import Parameter
from tenon.optim.optimizer import Optimizer
from tenon.optim.scheduler import LRScheduler
from tenon.plugins import registry
from tenon.plugins.manager import host
from tenon.training.config import RunConfig, closest, unknown_key
from tenon.training.layers import Table, dotted, shortened

Built = TypeVar("Built")

#: What code raises for options that it cannot work with.
_REFUSALS = (TypeError, ValueError, OverflowError, MemoryError)


@dataclass(frozen=True)
class Recipe:
    """A model, its data and suitable settings, for ``tenon train NAME``.

    ``model(**model_options)`` returns a Module, ``data(**data_options)`` returns ``Splits``; ``defaults`` is
    the lowest layer of the configuration.
    """

    model: Callable[..., Module]
    data: Callable[..., object]
    defaults: Mapping[str, object] = field(default_factory=dict)
    summary: str = ""


def recipe_named(name: str) -> Recipe:
    """The recipe that a plugin registers as ``name``; ConfigError with the known names if there is none."""
    try:
        recipe = registry.resolve("recipes", name)
    except PluginNotFoundError as error:
        known = registry.names("recipes")
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        raise ConfigError(
            f"no recipe or configuration file named {name!r}. {hint}Recipes: {', '.join(known) or 'none'}; a"
            " file ends in .toml, or in .json."
        ) from error
    if not isinstance(recipe, Recipe):
        raise ConfigError(
            f"recipe {name!r} is a {type(recipe).__name__}; a plugin must declare a tenon.extend.Recipe."
        )
    return recipe


def target(path: str, key: str) -> Any:  # a model, a function: the caller checks
    """Import the object of any type named ``"package.module:name"``; also from the working directory."""
    module_name, _, name = path.partition(":")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    _refuse_standard_library(module_name, f"{key} = {path!r}")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise ConfigError(
                f"{key} = {path!r}: no module named {error.name!r}. It is looked up from {folder} and the"
                " installed packages."
            ) from error
        raise
    value: object = module
    for part in name.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            near = difflib.get_close_matches(part, dir(value), n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"{key} = {path!r}: {module_name} has no {part!r}.{hint}") from None
    defined_in = getattr(_without_arguments(value), "__module__", None)
    if isinstance(defined_in, str):
        _refuse_standard_library(defined_in, f"{key} = {path!r}")
    return value


def _without_arguments(make: object) -> object:
    """The function that a ``functools.partial`` calls; ``make`` if it is none."""
    while isinstance(make, functools.partial):
        make = make.func
    return make


def _refuse_standard_library(module: str, setting: str) -> None:
    """ConfigError if ``module`` belongs to Python itself, which has neither models nor data."""
    top = module.partition(".")[0]
    try:
        spec = importlib.util.find_spec(top)
    except ValueError:  # __main__ of a script
        return
    if spec is None or top not in sys.stdlib_module_names:
        return
    origin = spec.origin or ""
    if not spec.has_location or Path(origin).is_relative_to(sysconfig.get_path("stdlib")):
        raise ConfigError(
            f"{setting}: {module!r} is a module of Python's standard library. If you mean your own file,"
            " rename it."
        )


def _check_callable(make: object, setting: str, what: str) -> None:
    """ConfigError, before anything is called, unless ``make`` is a class or function written in Python."""
    make = _without_arguments(make)
    if not callable(make) or isinstance(make, types.BuiltinFunctionType):
        raise ConfigError(f"{setting} names {shortened(make)}, a {type(make).__name__}; it must be {what}.")


def build_model(config: RunConfig, recipe: Recipe | None) -> Module:
    """The model of the run."""
    make = target(config.model, "model") if config.model is not None else _required(recipe).model
    what = "a tenon.nn.Module, or a function that returns one"
    _check_callable(make, f"model = {config.model!r}", what)
    if isinstance(make, type) and not issubclass(make, Module):
        raise ConfigError(f"model = {config.model!r} names a class, {make.__qualname__}; it must be {what}.")
    model = _call(make, config.model_options, "model_options")
    if not isinstance(model, Module):
        raise ConfigError(
            f"model = {config.model!r} returned a {type(model).__name__}, not a tenon.nn.Module."
        )
    return model


def build_data(config: RunConfig, recipe: Recipe | None) -> Splits:
    """The training and test data of the run."""
    make = target(config.data, "data") if config.data is not None else _required(recipe).data
    what = "a function that returns Splits(train, test)"
    _check_callable(make, f"data = {config.data!r}", what)
    if isinstance(make, type) and not issubclass(make, (Splits, tuple, Mapping)):
        raise ConfigError(f"data = {config.data!r} names a class, {make.__qualname__}; it must be {what}.")
    made = _call(make, config.data_options, "data_options")
    try:
        splits = as_splits(made, f"data = {config.data or config.recipe!r}")
    except DataError as error:
        raise ConfigError(str(error)) from None
    for name, part in (("train", splits.train), ("test", splits.test)):
        if len(part) == 0:
            raise ConfigError(f"the {name} data set of the run is empty.")
    return splits


def build_loss(config: RunConfig) -> Loss:
    """The loss function of the run."""
    if ":" in config.loss:
        function = target(config.loss, "loss")
        what = "a function of (output, target)"
        _check_callable(function, f"loss = {config.loss!r}", what)
        if isinstance(function, type):
            raise ConfigError(
                f"loss = {config.loss!r} names a class, {function.__qualname__}; it must be {what}."
            )
        loss_function: Loss = function
        return loss_function
    loss: Loss | None = getattr(functional, config.loss, None)
    if not inspect.isfunction(loss):
        known = [n for n in dir(functional) if n.endswith(("_loss", "_entropy", "_with_logits"))]
        raise ConfigError(f"unknown loss {config.loss!r}. {closest(config.loss, known)}")
    return loss


def find_optimizer(
    config: RunConfig, model: Module
) -> tuple[type[Optimizer], list[tuple[str, Parameter]], Table]:
    """The optimizer class, the model's trainable named parameters, and the options."""
    options = config.optimizer.options()
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    try:
        cls = registry.resolve_class("optimizers", config.optimizer.name, Optimizer)
    except (PluginNotFoundError, PluginTargetError) as error:
        raise ConfigError(f"optimizer.name = {config.optimizer.name!r}: {error}") from error
    check_options(cls, options, "optimizer", skip=("params",))
    _check_types(cls, options, "optimizer")
    return cls, named, options


def build_optimizer(config: RunConfig, model: Module) -> Optimizer:
    """The optimizer over the model's named parameters."""
    name = config.optimizer.name
    _, named, options = find_optimizer(config, model)
    return _build(
        lambda **o: host().hook.tenon_make_optimizer(name=name, params=named, options=o), options, "optimizer"
    )


def build_scheduler(config: RunConfig, optimizer: Optimizer, total_steps: int) -> LRScheduler | None:
    """The learning rate scheduler, or None; ``total_steps`` and ``T_max`` default to the run's length."""
    if config.scheduler is None:
        return None
    try:
        cls = registry.resolve_class("schedulers", config.scheduler.name, LRScheduler)
    except (PluginNotFoundError, PluginTargetError) as error:
        raise ConfigError(f"scheduler.name = {config.scheduler.name!r}: {error}") from error
    options = config.scheduler.options()
    accepted = inspect.signature(cls).parameters
    length = max(total_steps if config.scheduler.per == "step" else config.epochs, 1)
    for name in ("total_steps", "T_max"):
        if name in accepted and not {name, "epochs"} & set(options):
            options[name] = length
    check_options(cls, options, "scheduler", skip=("optimizer",))
    _check_types(cls, options, "scheduler")
    for name in ("T_max", "step_size"):  # the schedulers divide by them, at their first step
        if options.get(name, 1) < 1:
            raise ConfigError(
                f"scheduler.{name} = {shortened(options[name])}: must be at least 1, as a number of steps"
            )
    return _build(lambda **o: cls(optimizer, **o), options, "scheduler")


def _build(make: Callable[..., Built], options: Table, section: str) -> Built:
    """``make(**options)``; on failure ConfigError naming the single option that causes it, if one does."""
    try:
        return make(**options)
    except _REFUSALS as error:
        for name, value in options.items():
            try:
                make(**{key: options[key] for key in options if key != name})
            except _REFUSALS:
                if len(options) > 1:
                    continue
            raise ConfigError(
                f"{dotted((*section.split('.'), name))} = {shortened(value)}: {_one_line(error)}"
            ) from error
        raise ConfigError(f"{section} = {shortened(options)}: {_one_line(error)}") from error


def _one_line(error: BaseException) -> str:
    """The first line of ``error``, and where it was raised if not in tenon."""
    text = (str(error).splitlines() or [type(error).__name__])[0]
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not Path(f.filename).is_relative_to(Path(__file__).parents[1])]
    place = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
    return f"{text}{place}"


def _check_types(cls: type, options: Mapping[str, object], section: str) -> None:
    """ConfigError for a value of the wrong type, which a scheduler might not detect before its first step."""
    try:
        hints = get_type_hints(cls.__init__)  # type: ignore[misc]
    except NameError:  # annotations imported under TYPE_CHECKING
        return
    for name, value in options.items():
        try:
            # An option without annotation may be anything.
            TypeAdapter(hints.get(name, Any)).validate_python(value, strict=isinstance(value, str))
        except PydanticSchemaGenerationError:
            continue  # a type that TOML cannot express
        except ValidationError as error:
            raise ConfigError(
                f"{dotted((*section.split('.'), name))} = {shortened(value)}: {error.errors()[0]['msg']}"
            ) from None


def _required(recipe: Recipe | None) -> Recipe:
    """``recipe``; ConfigError if the configuration needs one and names none."""
    if recipe is None:
        raise ConfigError("the configuration names neither a recipe nor both model and data.")
    return recipe


def _call(make: Callable[..., Built], options: Mapping[str, object], section: str) -> Built:
    """``make(**options)``; ConfigError for an option that is not a parameter of ``make``, or that it rejects.

    Without options an error is the code's own, and keeps its traceback.
    """
    check_options(make, options, section)
    return _build(make, dict(options), section) if options else make()


def check_options(
    make: Callable[..., object], options: Mapping[str, object], section: str, skip: tuple[str, ...] = ()
) -> None:
    """ConfigError for an option that is not a parameter of ``make``, or is listed in ``skip``."""
    try:
        parameters = inspect.signature(make).parameters
    except ValueError:
        return
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    for name in options:
        if name not in parameters or name in skip:
            raise ConfigError(
                unknown_key([*section.split("."), name], [n for n in parameters if n not in skip])
            )
