"""``Optimizer``: torch's public face over update rules.

A subclass states ``defaults``, ``init(f, p)`` and ``update(f, p, g, s, h)``: the new parameter and the new
state from the old ones, as a pure function of ``f`` (ops, or bare arrays with ``backend.raw``). The base
applies it to every parameter with a gradient, in place::

    class Lion(Optimizer):
        defaults = {"lr": 1e-4, "beta1": 0.9, "beta2": 0.99}

        def init(self, f, p):
            return {"m": f.zeros_like(p)}

        def update(self, f, p, g, s, h):
            step = f.sign(h.beta1 * s["m"] + (1 - h.beta1) * g)
            return p - h.lr * step, {"m": h.beta2 * s["m"] + (1 - h.beta2) * g}

Rules are elementwise unless ``elementwise = False``; large parameters are then updated in pieces that fit
the cache. A subclass may instead override ``step`` whole, as torch's own optimizers do.

Next: ``groups.py`` checks parameter groups, ``state.py`` saves and loads.
"""

from __future__ import annotations

import functools
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

from tenon import ops
from tenon.core.grad_mode import MODE, enable_grad, no_grad
from tenon.core.handle import RemovableHandle
from tenon.core.interceptor import SLOT
from tenon.core.tensor import Tensor
from tenon.optim import groups, state

_PIECE = 1 << 16  # elements: p, g and two states of float32 take 1 MB, which stays in a core's cache
_TOGETHER = 1 << 12  # elements below which one piece is the whole parameter without further ado

StepHook = Callable[..., Any]


class _Required:
    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()


class Optimizer:
    """Base of all optimizers. ``params`` are tensors, ``(name, tensor)`` pairs, or dicts of groups.

    Give names (``model.named_parameters()``) and state is saved and loaded by name: a checkpoint then
    loads rightly when the order of parameters changed, and is refused when the names do not match.
    """

    #: Hyper-parameters of a rule, with their default values.
    defaults: Any = None
    #: The rule treats every element alike, so it may run on pieces.
    elementwise: ClassVar[bool] = True

    _step_pre_hooks: OrderedDict[int, StepHook]
    _step_post_hooks: OrderedDict[int, StepHook]

    def __init__(self, params: Any, defaults: dict[str, Any] | None = None, **options: Any) -> None:
        merged = dict(type(self).defaults or {}) if defaults is None else dict(defaults)
        groups.check_options(type(self), merged, options)
        merged.update(options)
        self.defaults = merged
        self.state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        for name in state.HOOK_KINDS:
            setattr(self, name, OrderedDict())
        for group in groups.listed(params):
            self.add_param_group(group)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = _with_hooks(cls.__dict__["step"])  # type: ignore[method-assign]

    # --- the rule ---

    def init(self, f: Any, p: Any) -> dict[str, Any]:
        """The state of a parameter before its first update."""
        return {}

    def update(self, f: Any, p: Any, g: Any, s: dict[str, Any], h: Any) -> tuple[Any, dict[str, Any]]:
        """The new parameter and state. ``h`` has the group's hyper-parameters, and ``h.step`` from 1 on."""
        raise NotImplementedError(
            f"{type(self).__name__} defines neither update(f, p, g, s, h) nor step(closure); define one of them."
        )

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient; returns the closure's loss, if one is given."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        if self._step_pre_hooks or _GLOBAL_PRE:
            self._run_pre_hooks((closure,), {})
        previous = MODE.enabled
        MODE.enabled = False
        try:
            for group in self.param_groups:
                self._update_group(group)
        finally:
            MODE.enabled = previous
        self._opt_called = True
        if self._step_post_hooks or _GLOBAL_POST:
            self._run_post_hooks((closure,), {})
        return loss

    def _update_group(self, group: dict[str, Any]) -> None:
        h = SimpleNamespace(**group)
        h.lr = float(h.lr) if isinstance(group.get("lr"), Tensor) else group.get("lr")
        maximize = group.get("maximize", False)
        watched = SLOT.top is not None
        for p in group["params"]:
            grad = p._grad
            if grad is None:
                continue
            held = self.state[p]
            backend = p._backend
            if watched:
                self._update_watched(p, grad, held, h, maximize)
                continue
            f = backend.raw
            if not held:
                held["step"] = 0
                for name, value in self.init(f, p.raw).items():
                    held[name] = Tensor._of(backend.as_array(value), backend)
            step = held["step"]
            h.step = held["step"] = (step.item() if isinstance(step, Tensor) else step) + 1
            g = f.neg(grad.raw) if maximize else grad.raw
            raw = p.raw
            if raw.size > _PIECE and self.elementwise and _flat(p, grad, held):
                self._update_pieces(f, raw, g, held, h, backend)
            else:
                s = {n: v.raw if v.__class__ is Tensor else v for n, v in held.items()}
                made, new = self.update(f, raw, g, s, h)
                raw[...] = made
                _store(held, new, backend)
            counter = p._version_counter
            if counter is None:
                p._version_counter = [1]
            else:
                counter[0] += 1

    def _update_pieces(self, f: Any, raw: Any, g: Any, held: dict[str, Any], h: Any, backend: Any) -> None:
        """The rule over consecutive pieces of the flattened arrays; new state is allocated once."""
        flat, grad = raw.reshape(-1), g.reshape(-1)
        arrays = {n: v.raw.reshape(-1) for n, v in held.items() if v.__class__ is Tensor and v.raw.ndim}
        scalars = {n: v for n, v in held.items() if n not in arrays}
        for start in range(0, flat.size, _PIECE):
            piece = slice(start, start + _PIECE)
            s = scalars | {n: a[piece] for n, a in arrays.items()}
            made, new = self.update(f, flat[piece], grad[piece], s, h)
            flat[piece] = made
            for name, value in new.items():
                if name not in arrays:
                    t = held[name] = Tensor._of(f.new_full(raw, shape=raw.shape, value=0), backend)
                    arrays[name] = t.raw.reshape(-1)
                arrays[name][piece] = value

    def _update_watched(self, p: Any, grad: Any, held: dict[str, Any], h: Any, maximize: bool) -> None:
        """As ops on tensors, so that a recorder or profiler sees them."""
        if not held:
            held["step"] = 0
            held.update(self.init(ops, p.detach()))
        h.step = held["step"] = held["step"] + 1
        s = dict(held)
        made, new = self.update(ops, p.detach(), ops.neg(grad) if maximize else grad, s, h)
        p.copy_(made)
        held.update({n: v.detach() for n, v in new.items()})

    # --- groups and gradients ---

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group; options it does not state come from the defaults."""
        groups.add(self, param_group, required)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or set them to zero."""
        for group in self.param_groups:
            for p in group["params"]:
                grad = p._grad
                if grad is None:
                    continue
                if set_to_none:
                    p._grad = None
                else:
                    if grad._track:
                        p._grad = grad = grad.detach()
                    grad.zero_()

    # --- hooks ---

    def register_step_pre_hook(self, hook: StepHook) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` before each step; it may return new ``(args, kwargs)``."""
        return _register(self._step_pre_hooks, hook)

    def register_step_post_hook(self, hook: StepHook) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` after each step."""
        return _register(self._step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: StepHook, prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer)`` before ``state_dict``."""
        return _register(self._optimizer_state_dict_pre_hooks, hook, prepend)  # type: ignore[attr-defined]

    def register_state_dict_post_hook(self, hook: StepHook, prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)`` after ``state_dict``; it may return another."""
        return _register(self._optimizer_state_dict_post_hooks, hook, prepend)  # type: ignore[attr-defined]

    def register_load_state_dict_pre_hook(self, hook: StepHook, prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)`` before loading; it may return another."""
        return _register(self._optimizer_load_state_dict_pre_hooks, hook, prepend)  # type: ignore[attr-defined]

    def register_load_state_dict_post_hook(self, hook: StepHook, prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer)`` after loading."""
        return _register(self._optimizer_load_state_dict_post_hooks, hook, prepend)  # type: ignore[attr-defined]

    def _run_pre_hooks(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        for hook in (*_GLOBAL_PRE.values(), *self._step_pre_hooks.values()):
            result = hook(self, (self, *args), kwargs)
            if result is not None:
                if not (isinstance(result, tuple) and len(result) == 2):
                    raise RuntimeError(
                        f"{hook} must return None or a tuple of (new_args, new_kwargs), but got {result}."
                    )
                args, kwargs = tuple(result[0])[1:], result[1]
        return args, kwargs

    def _run_post_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for hook in (*self._step_post_hooks.values(), *_GLOBAL_POST.values()):
            hook(self, (self, *args), kwargs)

    # --- saving and loading ---

    def state_dict(self) -> dict[str, Any]:
        """State and groups with parameters as indices, and their names where they are known: torch's layout."""
        return state.to_dict(self)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what ``state_dict`` returned; by name where both sides have names. All or nothing."""
        state.load(self, state_dict)

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        self.__dict__.update(saved)
        for name in state.HOOK_KINDS:
            self.__dict__.setdefault(name, OrderedDict())

    def __repr__(self) -> str:
        text = f"{type(self).__name__} ("
        for i, group in enumerate(self.param_groups):
            text += f"\nParameter Group {i}\n"
            text += "".join(
                f"    {k}: {group[k]}\n" for k in sorted(group) if k not in ("params", "param_names")
            )
        return text + ")"


def _flat(p: Any, grad: Any, held: dict[str, Any]) -> bool:
    """Whether all arrays of a parameter can be flattened without a copy."""
    arrays = [p.raw, grad.raw, *(v.raw for v in held.values() if v.__class__ is Tensor and v.raw.ndim)]
    return all(
        getattr(a, "flags", None) is not None and a.flags.c_contiguous and a.shape == p.raw.shape
        for a in arrays
    )


def _store(held: dict[str, Any], new: dict[str, Any], backend: Any) -> None:
    for name, value in new.items():
        array = backend.as_array(value) if value.__class__ is not backend.array_type else value
        kept = held.get(name)
        if kept.__class__ is Tensor:
            kept.raw = array
        else:
            held[name] = Tensor._of(array, backend)


def _register(hooks: OrderedDict[int, StepHook], hook: StepHook, prepend: bool = False) -> RemovableHandle:
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def _with_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    """A subclass's own ``step`` with the step hooks around it."""

    @functools.wraps(step)
    def stepped(self: Any, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = self._run_pre_hooks(args, kwargs)
        result = step(self, *args, **kwargs)
        self._opt_called = True
        self._run_post_hooks(args, kwargs)
        return result

    return stepped


_GLOBAL_PRE: OrderedDict[int, StepHook] = OrderedDict()
_GLOBAL_POST: OrderedDict[int, StepHook] = OrderedDict()


def register_optimizer_step_pre_hook(hook: StepHook) -> RemovableHandle:
    """Call ``hook(optimizer, args, kwargs)`` before the step of every optimizer."""
    return _register(_GLOBAL_PRE, hook)


def register_optimizer_step_post_hook(hook: StepHook) -> RemovableHandle:
    """Call ``hook(optimizer, args, kwargs)`` after the step of every optimizer."""
    return _register(_GLOBAL_POST, hook)


__all__ = [
    "Optimizer",
    "no_grad",
    "register_optimizer_step_post_hook",
    "register_optimizer_step_pre_hook",
    "required",
]
