"""``Optimizer``: PyTorch's optimizer interface over pure update rules.

A subclass defines ``defaults``, ``init(f, p)`` and ``update(f, p, g, s, h)``. ``update`` returns the new
parameter and the new state, computed from the parameter ``p``, its gradient ``g``, its state ``s`` and the
hyper-parameters ``h`` with functions of the namespace ``f`` only (``tenon.ops`` for tensors, ``backend.raw``
for arrays). The base class applies it in place to every parameter that has a gradient::

    class Lion(Optimizer):
        defaults = {"lr": 1e-4, "beta1": 0.9, "beta2": 0.99}
        elementwise = True

        def init(self, f, p):
            return {"m": f.zeros_like(p)}

        def update(self, f, p, g, s, h):
            step = f.sign(h.beta1 * s["m"] + (1 - h.beta1) * g)
            return p - h.lr * step, {"m": h.beta2 * s["m"] + (1 - h.beta2) * g}

A subclass may override ``step`` instead, as PyTorch's own optimizers do.

Next: ``update.py`` applies rules, ``fused.py`` and ``batch.py`` apply them to many parameters at once,
``groups.py`` checks parameter groups, ``state.py`` saves and loads.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from typing import Any, ClassVar

from tenon.engine.aval import Aval
from tenon.engine.grad_mode import MODE
from tenon.engine.interceptor import SLOT
from tenon.engine.quiet import IGNORE, enter, leave
from tenon.engine.types import Operand, OpNamespace
from tenon.engine.watchers import WATCHERS
from tenon.optim import batch, fused, fused_flag, groups, state, step_hooks, update
from tenon.optim.groups import required
from tenon.optim.porting import (  # noqa: F401 - optimizers written for PyTorch import them from here
    _capturable_doc,
    _default_to_fused_or_foreach,
    _differentiable_doc,
    _disable_dynamo_if_unsupported,
    _foreach_doc,
    _foreach_supported_types,
    _fused_doc,
    _get_capturable_supported_devices,
    _get_scalar_dtype,
    _get_value,
    _maximize_doc,
    _params_doc,
    _stack_if_compiling,
    _to_scalar,
    _use_grad_for_differentiable,
    _view_as_real,
)
from tenon.optim.step_hooks import (
    Hook,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from tenon.optim.types import (
    Closure,
    Hyperparameters,
    ParamGroup,
    ParamsT,
    State,
    StateDict,
    Update,
)
from tenon.tensors.autograd.grad_mode import enable_grad
from tenon.tensors.autograd.handles import RemovableHandle
from tenon.tensors.tensor import Tensor


class Optimizer:
    """Base class of all optimizers. ``params``: tensors, ``(name, tensor)`` pairs, or dicts (groups).

    With names (``model.named_parameters()``) state is saved and loaded by name: a checkpoint then loads
    correctly after the order of parameters changed, and is refused if the names do not match.

    Of the options by which PyTorch chooses among implementations, ``foreach`` and ``capturable`` have no
    effect (rules with ``elementwise = True`` always run over many parameters at once), and ``fused=True``
    only checks the parameters and reads ``grad_scale`` and ``found_inf``.
    """

    #: Hyper-parameters of the rule and their default values.
    defaults: Any = None
    #: Whether the rule is elementwise, independent of shape: large parameters are then updated in blocks
    #: that fit the cache, and small ones together. False is always correct.
    elementwise: ClassVar[bool] = False
    #: Whether ``state[p]["step"]`` counts the updates of ``p``; the rule reads the count in ``h.step``.
    counts_steps: ClassVar[bool] = True

    state: defaultdict[Tensor, State]
    param_groups: list[ParamGroup]
    #: The hooks before and after the step of every optimizer.
    _hooks_of_all: ClassVar[tuple[OrderedDict[int, Hook], ...]] = (
        step_hooks.GLOBAL_PRE,
        step_hooks.GLOBAL_POST,
    )
    _optimizer_step_pre_hooks: OrderedDict[int, Hook]
    _optimizer_step_post_hooks: OrderedDict[int, Hook]
    _optimizer_state_dict_pre_hooks: OrderedDict[int, Hook]
    _optimizer_state_dict_post_hooks: OrderedDict[int, Hook]
    _optimizer_load_state_dict_pre_hooks: OrderedDict[int, Hook]
    _optimizer_load_state_dict_post_hooks: OrderedDict[int, Hook]

    # Each option has a type of its own.
    def __init__(self, params: ParamsT, defaults: dict[str, Any] | None = None, **options: Any) -> None:
        merged = dict(type(self).defaults or {}) | dict(defaults or {})
        groups.check_options(type(self), merged, options)
        self.defaults = merged | options
        self.state = defaultdict(dict)
        self.param_groups = []
        self._plans: dict[int, batch.Plan] = {}
        self._fused: dict[int, fused.Plan] = {}
        for name in step_hooks.KINDS:
            setattr(self, name, OrderedDict())
        for group in groups.listed(params):
            self.add_param_group(group)

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = step_hooks.hooked(cls.__dict__["step"])  # type: ignore[method-assign]

    # --- the rule ---

    def init(self, f: OpNamespace, p: Operand) -> State:
        """Return the initial state of the parameter ``p``, before its first update."""
        return {}

    def update(self, f: OpNamespace, p: Operand, g: Operand, s: State, h: Hyperparameters) -> Update:
        """Return the new parameter and state. ``h``: hyper-parameters, and ``h.step`` from 1."""
        raise NotImplementedError(
            f"{type(self).__name__} defines neither update(f, p, g, s, h) nor step(closure); define one."
        )

    def start(self, parameter: Tensor) -> None:
        """Initialise the state of ``parameter`` now instead of at its first update."""
        update.start(self, parameter)

    @step_hooks.hooked
    def step(self, closure: Closure | None = None) -> Tensor | None:
        """Update every parameter that has a gradient; return the loss that ``closure`` computed, if any."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        previous = MODE.enabled
        token = enter(IGNORE)
        try:
            MODE.enabled = False
            for group in self.param_groups:
                self._update_group(group)
        finally:
            MODE.enabled = previous
            leave(token)
        return loss

    step.own_rule = True  # type: ignore[attr-defined]

    def _update_group(self, group: ParamGroup) -> None:
        params = group["params"]
        if group.get("fused") and not fused_flag.ready(self, group):
            return
        if SLOT.watched() or group.get("differentiable"):
            for p in params:
                if p.grad is not None:
                    update.update_through_ops(self, p, group)
            return
        h = update.hyperparameters(group)
        maximize = bool(group.get("maximize"))
        planned = True
        if self.elementwise:
            rest = fused.run(self, group, h, maximize)
            if rest is None:
                params, planned = batch.run(self, group, h, maximize)
            else:
                params = rest
        for p in params:
            if p._grad is not None:
                if isinstance(p.raw, Aval):
                    update.update_through_ops(self, p, group)
                else:
                    update.update_alone(self, p, h, maximize)
        if not planned:
            self._plans[id(group)] = batch.Plan(self, params)

    def _has_rule(self) -> bool:
        return type(self).update is not Optimizer.update

    # --- groups and gradients ---

    def add_param_group(self, param_group: ParamGroup) -> None:
        """Add a parameter group; options that it lacks are taken from the defaults."""
        groups.add(self, param_group)

    def check_parameter(self, p: Tensor) -> None:
        """Raise if this optimizer cannot train ``p``; called before the group of ``p`` is added."""

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set the gradients of all parameters to None, or to zero unless ``set_to_none``."""
        for group in self.param_groups:
            for p in group["params"]:
                if set_to_none:
                    if WATCHERS.recorder is not None:
                        WATCHERS.recorder.gradient_set(p)
                    p._grad = None
                elif (grad := p.grad) is not None:
                    if grad._track:
                        p._grad = grad = grad.detach()
                    grad.zero_()

    # --- hooks ---

    def register_step_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` before each step; it may return new ``(args, kwargs)``."""
        return step_hooks.register(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` after each step."""
        return step_hooks.register(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer)`` before ``state_dict``."""
        return step_hooks.register(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)`` after ``state_dict``; a dict that it returns replaces it."""
        return step_hooks.register(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)`` before loading; a dict that it returns replaces it."""
        return step_hooks.register(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer)`` after loading."""
        return step_hooks.register(self._optimizer_load_state_dict_post_hooks, hook, prepend)

    # --- saving and loading ---

    def state_dict(self) -> StateDict:
        """Return state and groups in PyTorch's layout: parameters as indices, and their names if known."""
        return state.to_dict(self)

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Load a ``state_dict``, by name if both sides have names. On any error nothing is changed."""
        state.load(self, state_dict)

    def __getstate__(self) -> dict[str, object]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._plans = {}
        self._fused = {}
        for name in step_hooks.KINDS:
            self.__dict__.setdefault(name, OrderedDict())
        for group in self.param_groups:
            for option, value in self.defaults.items():
                group.setdefault(option, value)  # the checkpoint is older than the option

    def __repr__(self) -> str:
        text = f"{type(self).__name__} ("
        for i, group in enumerate(self.param_groups):
            text += f"\nParameter Group {i}\n"
            text += "".join(f"    {k}: {group[k]}\n" for k in sorted(group) if k != "params")
        return text + ")"


_global_optimizer_pre_hooks, _global_optimizer_post_hooks = step_hooks.GLOBAL_PRE, step_hooks.GLOBAL_POST

__all__ = [
    "Optimizer",
    "ParamsT",
    "register_optimizer_step_post_hook",
    "register_optimizer_step_pre_hook",
    "required",
]
