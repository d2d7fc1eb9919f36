"""State dicts of ``FullyShardedDataParallel``: whole tensors or shards, of the model and the optimizer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from tenon.distributed.communication import world
from tenon.distributed.fsdp.options import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    OptimStateDictConfig,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    StateDictConfig,
    StateDictSettings,
    StateDictType,
)
from tenon.distributed.fsdp.state import states_of
from tenon.distributed.fsdp.whole_parameters import on_cpu, sharded_like, whole_tensors
from tenon.engine.types import Forwarded
from tenon.errors import ArgumentError, UnsupportedError
from tenon.nn.module import Module

if TYPE_CHECKING:
    from tenon.nn.state import IncompatibleKeys, StateDict
    from tenon.optim.optimizer import Optimizer

#: The attribute of the wrapped model.
WRAPPED = "_fsdp_wrapped_module"
#: Tensors, numbers and dicts of them, by name.
Values: TypeAlias = dict[str, Any]


class WithStateDicts(Module):
    """Mixin of ``FullyShardedDataParallel``, which sets ``_settings``."""

    _settings: StateDictSettings

    @property
    def module(self) -> Module:
        """The model."""
        wrapped: Module = self._modules[WRAPPED]
        return wrapped

    @staticmethod
    def set_state_dict_type(
        module: Module,
        state_dict_type: StateDictType,
        state_dict_config: StateDictConfig | None = None,
        optim_state_dict_config: OptimStateDictConfig | None = None,
    ) -> StateDictSettings:
        """Choose what ``state_dict`` and ``optim_state_dict`` return; returns the previous choice."""
        if state_dict_type is StateDictType.LOCAL_STATE_DICT:
            raise UnsupportedError(
                "LOCAL_STATE_DICT is of flat parameters, which do not exist here. Use SHARDED_STATE_DICT."
            )
        full = state_dict_type is StateDictType.FULL_STATE_DICT
        if state_dict_config is None:
            state_dict_config = FullStateDictConfig() if full else ShardedStateDictConfig()
        if optim_state_dict_config is None:
            optim_state_dict_config = FullOptimStateDictConfig() if full else ShardedOptimStateDictConfig()
        if isinstance(state_dict_config, FullStateDictConfig) is not full:
            raise ArgumentError(
                f"{state_dict_type} does not go with a {type(state_dict_config).__name__}. Pass the"
                f" {'Full' if full else 'Sharded'}StateDictConfig."
            )
        settings = StateDictSettings(state_dict_type, state_dict_config, optim_state_dict_config)
        previous = WithStateDicts.get_state_dict_type(module)
        for each in module.modules():
            if isinstance(each, WithStateDicts):
                each._settings = settings
        return previous

    @staticmethod
    def get_state_dict_type(module: Module) -> StateDictSettings:
        """The present choice."""
        for each in module.modules():
            if isinstance(each, WithStateDicts):
                return each._settings
        raise ArgumentError(f"{type(module).__name__} has no FullyShardedDataParallel module in it.")

    @staticmethod
    @contextlib.contextmanager
    def state_dict_type(
        module: Module,
        state_dict_type: StateDictType,
        state_dict_config: StateDictConfig | None = None,
        optim_state_dict_config: OptimStateDictConfig | None = None,
    ) -> Iterator[None]:
        """``set_state_dict_type`` inside of a ``with`` block."""
        choose = WithStateDicts.set_state_dict_type
        previous = choose(module, state_dict_type, state_dict_config, optim_state_dict_config)
        try:
            yield
        finally:
            kinds = previous.state_dict_type, previous.state_dict_config, previous.optim_state_dict_config
            choose(module, *kinds)

    def _keeps(self, config: StateDictConfig | OptimStateDictConfig) -> bool:
        """Whether this rank gets whole tensors."""
        return not getattr(config, "rank0_only", False) or world.get_communicator().rank == 0

    def state_dict(
        self, *args: Forwarded, destination: StateDict | None = None, prefix: str = "",
        keep_vars: bool = False,
    ) -> StateDict:  # fmt: skip
        """Whole tensors, or DTensors with ``SHARDED_STATE_DICT``, under the names of the unwrapped model.

        Collective if they are whole; ``rank0_only`` gives them to rank 0 only.
        """
        settings, config = self._settings, self._settings.state_dict_config
        own = self.module.state_dict(*args, prefix=prefix, keep_vars=keep_vars)
        values: Mapping[str, object] = dict(own)
        if settings.state_dict_type is StateDictType.FULL_STATE_DICT:
            values = whole_tensors(values, self._keeps(config))
        own.clear()
        own.update(on_cpu(values, config.offload_to_cpu))
        if destination is None:
            return own
        destination.update(own)
        return destination

    def load_state_dict(
        self, state_dict: Mapping[str, object], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Load whole tensors, of which each rank takes its part, or DTensors."""
        stripped = {name.replace(f"{WRAPPED}.", ""): value for name, value in state_dict.items()}
        own = self.module.state_dict()
        return self.module.load_state_dict(sharded_like(stripped, own), strict=strict, assign=assign)

    @staticmethod
    def optim_state_dict(
        model: Module, optim: Optimizer, optim_state_dict: Values | None = None, group: object = None
    ) -> Values:
        """The state of ``optim``, under names of parameters; whole tensors, or DTensors with
        ``SHARDED_STATE_DICT``. Collective if they are whole. ``group`` has no effect."""
        settings = WithStateDicts.get_state_dict_type(model)
        config = settings.optim_state_dict_config
        whole = settings.state_dict_type is StateDictType.FULL_STATE_DICT
        given = optim.state_dict() if optim_state_dict is None else optim_state_dict
        names = names_of(model, optim)
        keeps = not getattr(config, "rank0_only", False) or world.get_communicator().rank == 0
        state: Values = {}
        for number, entry in given["state"].items():
            values = whole_tensors(entry, True) if whole else dict(entry)
            if keeps:
                state[names[number]] = on_cpu(values, config.offload_to_cpu)
        if not keeps:
            return {}
        groups = [{**g, "params": [names[number] for number in g["params"]]} for g in given["param_groups"]]
        return {"state": state, "param_groups": groups}

    @staticmethod
    def optim_state_dict_to_load(
        model: Module,
        optim: Optimizer,
        optim_state_dict: Values,
        is_named_optimizer: bool = False,
        load_directly: bool = False,
        group: object = None,
    ) -> Values:
        """What ``optim.load_state_dict`` takes, of a result of ``optim_state_dict``; loaded at once with
        ``load_directly``. ``is_named_optimizer`` and ``group`` have no effect."""
        names = names_of(model, optim)
        parameters = dict(zip(names, (p for g in optim.param_groups for p in g["params"]), strict=True))
        numbers = {name: number for number, name in enumerate(names)}
        state = {}
        for name, entry in optim_state_dict["state"].items():
            if name not in numbers:
                raise ArgumentError(
                    f"optim_state_dict_to_load: the optimizer has no parameter {name!r}; its parameters are"
                    f" {', '.join(names[:10])}. Load the state of an optimizer of the same model."
                )
            own = {key: parameters[name] for key in entry}
            state[numbers[name]] = sharded_like(entry, own)
        groups = [
            {**g, "params": [numbers[name] for name in g["params"]]} for g in optim_state_dict["param_groups"]
        ]
        result = {"state": state, "param_groups": groups}
        if load_directly:
            optim.load_state_dict(result)
        return result


def with_wrapped(state_dict: StateDict, prefix: str, *args: object) -> None:
    """Before a wrapper is loaded as a part of a model: give keys the name of the wrapped model."""
    inner = f"{prefix}{WRAPPED}."
    for key in list(state_dict):
        if key.startswith(prefix) and not key.startswith(inner):
            state_dict[inner + key.removeprefix(prefix)] = state_dict.pop(key)


def names_of(model: Module, optim: Optimizer) -> list[str]:
    """The names of the optimizer's parameters, in their order."""
    names = {id(p): name for name, p in model.named_parameters()}
    for state in states_of(model):
        for each in state.group.parameters:
            if id(each.whole) in names:
                names[id(each.sharded)] = names[id(each.whole)]
    found = []
    for group in optim.param_groups:
        for number, p in enumerate(group["params"]):
            if id(p) not in names:
                raise ArgumentError(
                    f"parameter {number} of a group of the optimizer, {list(p.shape)}, is not of the model."
                    " Create the optimizer after the model is sharded, with model.parameters()."
                )
            found.append(names[id(p)])
    return found
