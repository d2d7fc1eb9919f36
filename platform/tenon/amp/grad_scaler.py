"""``GradScaler``: scales losses up so that float16 gradients do not vanish, and skips steps where they
overflow.

In each iteration the state of an optimizer goes from READY to UNSCALED to STEPPED; ``update`` starts the
next. The scale shrinks after an iteration with an infinity or NaN in any gradient, and grows after
``growth_interval`` iterations without.
"""

from __future__ import annotations

import warnings
import weakref
from collections import defaultdict
from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

from tenon import cuda, dtypes
from tenon.engine.op import table as f
from tenon.engine.types import Forwarded
from tenon.engine.watchers import WATCHERS
from tenon.errors import ScalerError, TenonWarning
from tenon.tensors.autograd.grad_mode import no_grad
from tenon.tensors.creation.factories import full
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.device import Device
    from tenon.engine.types import Nested

__all__ = ["GradScaler", "OptState"]


class OptState(Enum):
    """Progress of an optimizer since the last ``update``."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


class ScaledOptimizer(Protocol):
    """What the scaler uses of ``tenon.optim.Optimizer``, which is defined in a higher layer."""

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # options have different types
        """The groups, each with its list ``params``."""

    def step(self, *args: Forwarded, **kwargs: Forwarded) -> Forwarded:
        """Update the parameters."""


class _OptimizerState(TypedDict):
    """State of one optimizer in an iteration; the keys are PyTorch's."""

    stage: OptState
    #: For each device 1.0 if a gradient on it was infinite or NaN, else 0.0.
    found_inf_per_device: dict[Device, Tensor]


def _recording() -> bool:
    """Return whether a function is being recorded for compilation."""
    return WATCHERS.recorder is not None and bool(WATCHERS.recorder.listening())


def _new_state() -> _OptimizerState:
    return {"stage": OptState.READY, "found_inf_per_device": {}}


class GradScaler:
    """Dynamic loss scaling (torch.amp.GradScaler).

    With ``enabled=False`` losses and gradients are not scaled, and ``step`` only calls ``optimizer.step``.

    >>> import tenon
    >>> weight = tenon.ones(2, requires_grad=True)
    >>> optimizer = tenon.optim.SGD([weight], lr=0.5)
    >>> scaler = tenon.amp.GradScaler("cpu", init_scale=4.0)
    >>> scaler.scale(weight.sum()).backward()
    >>> weight.grad
    tensor([4., 4.])
    >>> scaler.step(optimizer)
    >>> scaler.update()
    >>> weight.grad, weight.detach()
    (tensor([1., 1.]), tensor([0.5000, 0.5000]))
    """

    def __init__(
        self, device: str = "cuda", init_scale: float = 2.0**16, growth_factor: float = 2.0,
        backoff_factor: float = 0.5, growth_interval: int = 2000, enabled: bool = True,
    ) -> None:  # fmt: skip
        self._device = device
        self._enabled = bool(enabled)
        if enabled and device == "cuda" and not cuda.is_available():
            warnings.warn(
                "GradScaler is enabled, but CUDA is not available. Disabling. Pass device='cpu' to scale"
                " there.",
                TenonWarning,
                stacklevel=2,
            )
            self._enabled = False
        if not self._enabled:
            return
        if growth_factor <= 1.0:
            raise ScalerError(f"The growth factor must be > 1.0. (got {growth_factor})")
        if backoff_factor >= 1.0:
            raise ScalerError(f"The backoff factor must be < 1.0. (got {backoff_factor})")
        self._init_scale = init_scale
        self._scale: Tensor | None = None  # created by the first scale()
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._init_growth_tracker = 0
        self._growth_tracker: Tensor | None = None
        self._per_optimizer_states: defaultdict[int, _OptimizerState] = defaultdict(_new_state)
        #: In a compiled function: a weak reference to its recorder, and the next value of the growth tracker.
        self._recorded: weakref.ref[object] | None = None
        self._successes: Tensor | None = None

    def scale(self, outputs: Nested) -> Nested:
        """Return ``outputs``, a tensor or nested iterables of tensors, times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            scale = self._scale if self._scale is not None else self._create_scale(outputs.device)
            return outputs * scale.to(outputs.device)
        if isinstance(outputs, Iterable) and not isinstance(outputs, (str, bytes)):
            scaled = map(self.scale, outputs)
            return type(outputs)(scaled) if isinstance(outputs, (list, tuple)) else scaled
        raise ScalerError(
            f"outputs must be a Tensor or an iterable of Tensors, not {type(outputs).__name__}. Pass the"
            " loss."
        )

    def unscale_(self, optimizer: ScaledOptimizer) -> None:
        """Divide the gradients of ``optimizer`` by the scale, in place; only needed to clip gradients."""
        if not self._enabled:
            return
        scale, _ = self._check_scale_growth_tracker("unscale_")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.UNSCALED:
            raise ScalerError(
                "unscale_() has already been called on this optimizer since the last update(). Call it once"
                " per step."
            )
        if state["stage"] is OptState.STEPPED:
            raise ScalerError("unscale_() is being called after step(). Call update() first.")
        inverse = scale.double().reciprocal().float()
        state["found_inf_per_device"] = self._unscale_grads_(optimizer, inverse, allow_fp16=False)
        state["stage"] = OptState.UNSCALED

    def step(self, optimizer: ScaledOptimizer, *args: Forwarded, **kwargs: Forwarded) -> Forwarded:
        """Call ``optimizer.step(*args, **kwargs)`` with unscaled gradients; skip it if one is infinite or
        NaN."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise ScalerError(
                "Closure use is not currently supported if GradScaler is enabled. Compute the loss before"
                " step()."
            )
        self._check_scale_growth_tracker("step")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.STEPPED:
            raise ScalerError("step() has already been called since the last update(). Call update() first.")
        if state["stage"] is OptState.READY:
            self.unscale_(optimizer)
        found_inf = state["found_inf_per_device"]
        if not found_inf:
            raise ScalerError(
                "No inf checks were recorded for this optimizer: none of its parameters has a gradient. Call"
                " backward() on the scaled loss first."
            )
        result = None if sum(v.item() for v in found_inf.values()) else optimizer.step(*args, **kwargs)
        state["stage"] = OptState.STEPPED
        return result

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Adjust the scale to this iteration's overflows, or set it to ``new_scale``; start the next
        iteration."""
        if not self._enabled:
            return
        scale, growth_tracker = self._check_scale_growth_tracker("update")
        if new_scale is not None:
            self._set(scale, new_scale)
        else:
            found_inf = [
                v for s in self._per_optimizer_states.values() for v in s["found_inf_per_device"].values()
            ]
            if not found_inf:
                raise ScalerError(
                    "No inf checks were recorded prior to update. Call step() or unscale_() for an optimizer"
                    " first."
                )
            if _recording() and (self._recorded is None or self._recorded() is not WATCHERS.recorder):
                WATCHERS.recorder.unsupported("GradScaler.update() without step()")
            self._adjust(scale, growth_tracker, any(v.item() for v in found_inf))
        self._per_optimizer_states = defaultdict(_new_state)

    def _adjust(self, scale: Tensor, growth_tracker: Tensor, overflow: bool) -> None:
        """Shrink ``scale`` after an overflow; else count the iteration and let ``scale`` grow in time."""
        if overflow:
            scale.fill_(scale.item() * self._backoff_factor)
            growth_tracker.fill_(0)
            return
        if self._successes is not None and _recording():
            growth_tracker.copy_(self._successes)
            self._successes = None
            return
        successes = growth_tracker.item() + 1
        if successes == self._growth_interval:
            grown = scale * self._growth_factor
            if grown.isfinite().item():  # an infinite scale would never shrink again
                scale.copy_(grown)
            successes = 0
        growth_tracker.fill_(successes)

    def _set(self, scale: Tensor, new_scale: float | Tensor) -> None:
        """Write ``new_scale`` into ``scale``; raise ScalerError for a tensor that does not fit."""
        if isinstance(new_scale, float):
            scale.fill_(new_scale)
            return
        if (
            not isinstance(new_scale, Tensor)
            or new_scale.device.type != self._device
            or new_scale.numel() != 1
            or new_scale.requires_grad
        ):
            raise ScalerError(
                "new_scale should be a float or a 1-element tensor on the scaler's device with"
                f" requires_grad=False, got {new_scale!r}."
            )
        scale.copy_(new_scale.reshape(()))

    def _unscale_grads_(
        self, optimizer: ScaledOptimizer, inverse: Tensor, found_inf: object = None, allow_fp16: bool = True
    ) -> dict[Device, Tensor]:
        """Multiply all gradients by ``inverse``; return for each device 1.0 if one was infinite or NaN, or 0.

        ``found_inf`` has no effect; PyTorch has that parameter.
        """
        grads = self._gradients(optimizer)
        if not allow_fp16 and any(g.dtype is dtypes.float16 for g in grads):
            raise ScalerError(
                "Attempting to unscale FP16 gradients. Keep parameters in float32 and use autocast for the"
                " forward pass."
            )
        result: dict[Device, Tensor] = {}
        if _recording():
            result = self._record_unscaling(grads, inverse)
            if result:
                return result
        with no_grad():
            for grad in grads:
                device = grad.device
                grad.mul_(inverse.to(device))
                # The sum of x * 0 is 0 or NaN: one pass, no array of booleans.
                overflow = not bool(
                    f.isfinite(f.mul(f.sum(grad, axes=tuple(range(grad.raw.ndim))), 0.0)).item()
                )
                if overflow:
                    overflow = not bool(grad.isfinite().all().item())
                if device not in result:
                    result[device] = full((), 0.0, dtype=dtypes.float32, device=device)
                if overflow:
                    result[device].fill_(1.0)
        return result

    def _gradients(self, optimizer: ScaledOptimizer) -> list[Tensor]:
        """The gradients to unscale in place."""
        return [p.grad for g in optimizer.param_groups for p in g["params"] if p.grad is not None]

    def _record_unscaling(self, grads: list[Tensor], inverse: Tensor) -> dict[Device, Tensor]:
        """Record the unscaling for a compiled program, which is valid while gradients are finite and the
        scale does not change; return {} if that is not so now."""
        recorder, sums = WATCHERS.recorder, []
        with no_grad():
            for grad in grads:
                sums.append(f.sum(f.mul(grad, 0.0), axes=tuple(range(grad.raw.ndim))))
            reason = "a gradient is infinite or NaN: no step, a smaller scale"
            inverse = recorder.expect(sum(sums) == 0.0, inverse, reason)
            if inverse is None:
                return {}
            # Before the gradients are written: writes before the last condition need memory of their own.
            recorder.guard_value("the growth interval of a GradScaler", lambda: self._growth_interval)
            _, tracker = self._check_scale_growth_tracker("unscale_")
            tracker = recorder.expect(tracker < self._growth_interval - 1, tracker, "the scale grows")
            if tracker is None:
                return {}
            self._successes = tracker + 1
            for grad in grads:
                grad.mul_(inverse.to(grad.device))
        recorder.at_end(
            lambda: "GradScaler.step() or unscale_() without update()" if self._per_optimizer_states else None
        )
        self._recorded = weakref.ref(recorder)
        return {grads[0].device: full((), 0.0, dtype=dtypes.float32, device=grads[0].device)}

    def _create_scale(self, device: Device) -> Tensor:
        """Create the tensors of scale and growth tracker on ``device``; return the first."""
        scale: Tensor = full((), self._init_scale, dtype=dtypes.float32, device=device)
        self._scale = scale
        self._growth_tracker = full((), self._init_growth_tracker, dtype=dtypes.int32, device=device)
        return scale

    def _check_scale_growth_tracker(self, name: str) -> tuple[Tensor, Tensor]:
        """Return scale and growth tracker; raise ScalerError if ``scale`` has not been called yet."""
        if self._scale is None or self._growth_tracker is None:
            raise ScalerError(
                f"Attempted {name} but _scale is None. This may indicate your script did not use"
                " scaler.scale(loss or outputs) earlier in the iteration."
            )
        return self._scale, self._growth_tracker

    def get_scale(self) -> float:
        """Return the scale as a number; 1.0 if disabled."""
        if not self._enabled:
            return 1.0
        return float(self._init_scale if self._scale is None else self._scale.item())

    def get_growth_factor(self) -> float:
        """Return the factor of the scale's growth."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Set the factor of the scale's growth."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """Return the factor of the scale after an overflow."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Set the factor of the scale after an overflow."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """Return the number of iterations without overflow after which the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Set the number of iterations without overflow after which the scale grows."""
        self._growth_interval = new_interval

    def _get_growth_tracker(self) -> int:
        if not self._enabled:
            return 0
        return int(self._init_growth_tracker if self._growth_tracker is None else self._growth_tracker.item())

    def is_enabled(self) -> bool:
        """Return whether gradients are scaled."""
        return self._enabled

    def state_dict(self) -> dict[str, float]:
        """Return scale, factors, interval and the iterations since the last change; empty if disabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._get_growth_tracker(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:  # numbers of different types
        """Load a dict from ``state_dict()``; on an error nothing changes."""
        if not self._enabled:
            return
        if not state_dict:
            raise ScalerError(
                "The source state dict is empty, possibly because it was saved from a disabled instance of"
                " GradScaler. Leave it out, or build the scaler with enabled=False."
            )
        names = ("scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker")
        missing = [n for n in names if n not in state_dict]
        if missing:
            raise ScalerError(f"The state dict of a GradScaler lacks {missing}; it has {list(state_dict)}.")
        scale, growth, backoff, interval, tracker = (state_dict[n] for n in names)
        self._init_scale, self._init_growth_tracker = scale, tracker
        self._growth_factor, self._backoff_factor, self._growth_interval = growth, backoff, interval
        if self._scale is not None and self._growth_tracker is not None:
            self._scale.fill_(scale)
            self._growth_tracker.fill_(tracker)

    def __getstate__(self) -> dict[str, object]:
        state = self.__dict__.copy()
        if self._enabled:
            if self._per_optimizer_states:
                raise ScalerError(
                    "A GradScaler instance may only be pickled at the beginning of an iteration, or at the"
                    " end after scaler.update()."
                )
            state["_init_scale"], state["_init_growth_tracker"] = self.get_scale(), self._get_growth_tracker()
            state["_scale"] = state["_growth_tracker"] = None
            state["_recorded"] = state["_successes"] = None
        return state

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
