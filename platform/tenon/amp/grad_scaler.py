"""``GradScaler``: losses scaled up so that float16 gradients do not vanish, no step where they overflow.

Per optimizer an iteration goes READY, UNSCALED, STEPPED; ``update`` starts the next. The scale shrinks after
one with an infinity or NaN in any gradient and grows after ``growth_interval`` ones without.
"""

from __future__ import annotations

import warnings
import weakref
from collections import defaultdict
from collections.abc import Iterable
from enum import Enum
from typing import Any

from tenon import cuda, dtypes
from tenon.engine.grad_mode import no_grad
from tenon.engine.op import table as f
from tenon.engine.watchers import WATCHERS
from tenon.errors import ScalerError, TenonWarning
from tenon.tensors.creation.factories import full
from tenon.tensors.tensor import Tensor

__all__ = ["GradScaler", "OptState"]


class OptState(Enum):
    """How far an optimizer has come since the last ``update``."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


def _recording() -> bool:
    return WATCHERS.recorder is not None and bool(WATCHERS.recorder.listening())


def _fresh() -> dict[str, Any]:
    return {"stage": OptState.READY, "found_inf_per_device": {}}


class GradScaler:
    """Dynamic loss scaling (torch.amp.GradScaler). With ``enabled=False`` every method does nothing more than
    the plain loop would.

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
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
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
        self._scale: Any = None  # made at the first scale()
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._init_growth_tracker = 0
        self._growth_tracker: Any = None
        self._per_optimizer_states: dict[int, dict[str, Any]] = defaultdict(_fresh)
        #: In a compiled function: a weak reference to its recorder, and what the growth tracker becomes.
        self._recorded: Any = None
        self._successes: Any = None

    # --- one iteration ---

    def scale(self, outputs: Any) -> Any:
        """``outputs`` (a tensor or nested iterables of them) times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            if self._scale is None:
                self._start(outputs.device)
            return outputs * self._scale.to(outputs.device)
        if isinstance(outputs, Iterable) and not isinstance(outputs, (str, bytes)):
            scaled = map(self.scale, outputs)
            return type(outputs)(scaled) if isinstance(outputs, (list, tuple)) else scaled
        raise ScalerError(
            f"outputs must be a Tensor or an iterable of Tensors, not {type(outputs).__name__}. Pass the"
            " loss."
        )

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of ``optimizer`` by the scale, in place; needed before clipping only."""
        if not self._enabled:
            return
        self._check_started("unscale_")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.UNSCALED:
            raise ScalerError(
                "unscale_() has already been called on this optimizer since the last update(). Call it once"
                " per step."
            )
        if state["stage"] is OptState.STEPPED:
            raise ScalerError("unscale_() is being called after step(). Call update() first.")
        inverse = self._scale.double().reciprocal().float()
        state["found_inf_per_device"] = self._unscale_grads_(optimizer, inverse, allow_fp16=False)
        state["stage"] = OptState.UNSCALED

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """``optimizer.step(*args, **kwargs)`` on unscaled gradients, or nothing if one is infinite or NaN."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise ScalerError(
                "Closure use is not currently supported if GradScaler is enabled. Compute the loss before"
                " step()."
            )
        self._check_started("step")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.STEPPED:
            raise ScalerError("step() has already been called since the last update(). Call update() first.")
        if state["stage"] is OptState.READY:
            self.unscale_(optimizer)
        found = state["found_inf_per_device"]
        if not found:
            raise ScalerError(
                "No inf checks were recorded for this optimizer: none of its parameters has a gradient. Call"
                " backward() on the scaled loss first."
            )
        result = None if sum(v.item() for v in found.values()) else optimizer.step(*args, **kwargs)
        state["stage"] = OptState.STEPPED
        return result

    def update(self, new_scale: Any = None) -> None:
        """Adjust the scale by what the steps found, or set it; the next iteration begins."""
        if not self._enabled:
            return
        self._check_started("update")
        if new_scale is not None:
            self._set(new_scale)
        else:
            found = [
                v for s in self._per_optimizer_states.values() for v in s["found_inf_per_device"].values()
            ]
            if not found:
                raise ScalerError(
                    "No inf checks were recorded prior to update. Call step() or unscale_() for an optimizer"
                    " first."
                )
            if _recording() and (self._recorded is None or self._recorded() is not WATCHERS.recorder):
                WATCHERS.recorder.unsupported("GradScaler.update() apart from step()")
            self._adjust(any(v.item() for v in found))
        self._per_optimizer_states = defaultdict(_fresh)

    def _adjust(self, overflow: bool) -> None:
        if overflow:
            self._scale.fill_(self._scale.item() * self._backoff_factor)
            self._growth_tracker.fill_(0)
            return
        if self._successes is not None and _recording():
            self._growth_tracker.copy_(self._successes)
            self._successes = None
            return
        successes = self._growth_tracker.item() + 1
        if successes == self._growth_interval:
            grown = self._scale * self._growth_factor
            if grown.isfinite().item():  # never up to infinity
                self._scale.copy_(grown)
            successes = 0
        self._growth_tracker.fill_(successes)

    def _set(self, new_scale: Any) -> None:
        if isinstance(new_scale, float):
            self._scale.fill_(new_scale)
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
        self._scale.copy_(new_scale.reshape(()))

    def _unscale_grads_(
        self, optimizer: Any, inverse: Any, found_inf: Any = None, allow_fp16: bool = True
    ) -> dict[Any, Any]:
        """Multiply all gradients by ``inverse``; per device, 1.0 if one was infinite or NaN.

        The two middle arguments have torch's places; ``found_inf`` is not needed.
        """
        grads = [p.grad for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
        if not allow_fp16 and any(g.dtype is dtypes.float16 for g in grads):
            raise ScalerError(
                "Attempting to unscale FP16 gradients. Keep parameters in float32 and use autocast for the"
                " forward pass."
            )
        found: dict[Any, Any] = {}
        if _recording():
            found = self._record_unscaling(grads, inverse)
            if found:
                return found
        with no_grad():
            for grad in grads:
                device = grad.device
                grad.mul_(inverse.to(device))
                # The sum of x * 0 is 0 or NaN: one pass, no array of booleans.
                bad = not bool(f.isfinite(f.mul(f.sum(grad, axes=tuple(range(grad.raw.ndim))), 0.0)).item())
                if bad:
                    bad = not bool(grad.isfinite().all().item())
                if device not in found:
                    found[device] = full((), 0.0, dtype=dtypes.float32, device=device)
                if bad:
                    found[device].fill_(1.0)
        return found

    def _record_unscaling(self, grads: list[Any], inverse: Any) -> dict[Any, Any]:
        """The same in a compiled function, whose program holds for finite gradients and as long as the scale
        stays; {} if that is not so now."""
        recorder, sums = WATCHERS.recorder, []
        with no_grad():
            for grad in grads:
                sums.append(f.sum(f.mul(grad, 0.0), axes=tuple(range(grad.raw.ndim))))
            what = "a gradient is infinite or NaN: no step, a smaller scale"
            inverse = recorder.expect(sum(sums) == 0.0, inverse, what)
            if inverse is None:
                return {}
            # Asked now, since what is written before the last question has to wait in memory of its own.
            recorder.guard_value("the growth interval of a GradScaler", lambda: self._growth_interval)
            tracker = self._growth_tracker
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

    # --- scale and state ---

    def _start(self, device: Any) -> None:
        self._scale = full((), self._init_scale, dtype=dtypes.float32, device=device)
        self._growth_tracker = full((), self._init_growth_tracker, dtype=dtypes.int32, device=device)

    def _check_started(self, name: str) -> None:
        if self._scale is None:
            raise ScalerError(
                f"Attempted {name} but _scale is None. This may indicate your script did not use"
                " scaler.scale(loss or outputs) earlier in the iteration."
            )

    def get_scale(self) -> float:
        """The scale as a number; 1.0 if disabled."""
        if not self._enabled:
            return 1.0
        return float(self._init_scale if self._scale is None else self._scale.item())

    def get_growth_factor(self) -> float:
        """What the scale is multiplied by when it grows."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Choose what the scale is multiplied by when it grows."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """What the scale is multiplied by after an overflow."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Choose what the scale is multiplied by after an overflow."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """How many iterations without overflow make the scale grow."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Choose how many iterations without overflow make the scale grow."""
        self._growth_interval = new_interval

    def _get_growth_tracker(self) -> int:
        if not self._enabled:
            return 0
        return int(self._init_growth_tracker if self._growth_tracker is None else self._growth_tracker.item())

    def is_enabled(self) -> bool:
        """Whether gradients are scaled."""
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """Scale, factors, interval and the iterations since the last change; empty if disabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._get_growth_tracker(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what ``state_dict`` gave; all of it or, on an error, nothing."""
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
        if self._scale is not None:
            self._scale.fill_(scale)
            self._growth_tracker.fill_(tracker)

    def __getstate__(self) -> dict[str, Any]:
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

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
