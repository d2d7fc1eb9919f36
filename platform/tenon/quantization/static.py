"""Static int8: ranges of activations are observed, and layers become ones of fixed steps.

In order: ``Flow`` tells who reads what; batch norms are folded into the layers before them; calibration data
runs through the model while observers watch the inputs of layers and their results; then each layer takes
its place. A rectifier becomes part of the layer before it. A result is uint8 where only int8 layers read it,
directly or through layers that let steps pass (pools of maxima, flattening, dropout), and float32 elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar

from tenon import nn
from tenon.compress.receipt import call_of
from tenon.core.grad_mode import no_grad
from tenon.core.tensor import Tensor
from tenon.errors import QuantizationError
from tenon.nn.module import Module
from tenon.nn.parameter import Parameter
from tenon.plugins.registry import resolve
from tenon.quantization.flow import Flow, running
from tenon.quantization.scheme import Scheme, replace
from tenon.quantization.static_layers import Folded, StaticConv, StaticLinear, StaticMaxPool

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
_PASSING = (nn.Identity, Folded, nn.Flatten, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


class RangeObserver:
    """Watches what passes a place, and says between which limits it lies."""

    def observe(self, x: Tensor) -> None:
        """See one more float tensor; it is not changed and not kept."""
        raise NotImplementedError

    def limits(self) -> tuple[float, float]:
        """The smallest and largest number that int8 should tell apart."""
        raise NotImplementedError


class StaticScheme(Scheme):
    """A scheme whose observers decide on the steps of activations."""

    calibrates: ClassVar[bool] = True

    def observer(self) -> RangeObserver:
        """A new observer for one place."""
        raise NotImplementedError


def observer_of(name: str) -> RangeObserver:
    """A new observer of the class that a plugin declares as ``name``."""
    found = resolve("quantizers", name)
    if not (isinstance(found, type) and issubclass(found, RangeObserver)):
        raise QuantizationError(f"{name!r} is no observer. Name one, such as 'MinMax' or 'Histogram'.")
    return found()


def steps_of(low: float, high: float) -> tuple[float, int]:
    """``(step, zero)`` of uint8 for numbers from ``low`` to ``high``; 0 is always a step."""
    low, high = min(low, 0.0), max(high, 0.0)
    step = (high - low) / 255 or 1.0
    return step, min(255, max(0, round(-low / step)))


def fold_norms(model: Module, flow: Flow, skip: Collection[str] = ()) -> None:
    """Make batch norms part of the convolution or product before them, where nobody else reads its result."""
    for path, layer in flow.layers.items():
        norm_path = flow.next_of(path)
        norm: Any = flow.layers.get(norm_path)
        if path in skip or norm_path in skip or type(layer) not in (*_CONVOLUTIONS, nn.Linear):
            continue
        if type(norm) not in _NORMS or norm.running_mean is None:
            continue
        if type(layer) is nn.Linear and flow.ranks[path] != 2:
            continue  # the norm's channels are the second axis, the product's features the last
        with no_grad():
            factor = (norm.running_var + norm.eps).rsqrt()
            factor = factor if norm.weight is None else factor * norm.weight
            bias = -norm.running_mean if layer.bias is None else layer.bias - norm.running_mean
            bias = bias * factor if norm.bias is None else bias * factor + norm.bias
            layer.weight = Parameter(layer.weight * factor.reshape(-1, *(1,) * (layer.weight.dim() - 1)))
            layer.bias = Parameter(bias)
        replace(model, norm_path, Folded().train(norm.training))
        flow.layers[norm_path] = model.get_submodule(norm_path)


def quantizable(layer: Any) -> bool:
    """Whether ``layer`` has a static form."""
    if type(layer) in _CONVOLUTIONS:
        return layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    return type(layer) is nn.Linear


def _passes(layer: Any) -> bool:
    pool = type(layer) in _POOLS and not layer.return_indices and not layer.ceil_mode
    return type(layer) in _PASSING or (pool and layer.dilation in (1, (1,), (1, 1), (1, 1, 1)))


class _Plan:
    """Where a layer's result ends, behind its rectifier, and who takes it as uint8."""

    def __init__(self, flow: Flow, path: str, taken: Collection[str]) -> None:
        self.end, self.relu = path, ""
        self.sinks: list[str] = []
        self.pools: list[str] = []
        following = flow.next_of(path)
        while following and type(flow.layers[following]) in (nn.Identity, Folded):
            self.end, following = following, flow.next_of(following)
        if following and type(flow.layers[following]) is nn.ReLU:
            self.end = self.relu = following
        if flow.calls[path] != 1 or not self._collect(flow, self.end, taken):
            self.sinks, self.pools = [], []

    def _collect(self, flow: Flow, path: str, taken: Collection[str]) -> bool:
        """Whether all that ``path`` gives ends in layers of ``taken``; keep them and the pools between."""
        for reader in flow.readers[path]:
            if not reader or flow.calls[reader] != 1:
                return False
            if reader in taken:
                self.sinks.append(reader)
            elif not _passes(flow.layers[reader]) or not self._collect(flow, reader, taken):
                return False
            elif type(flow.layers[reader]) in _POOLS:
                self.pools.append(reader)
        return bool(flow.readers[path])


def convert(
    model: Module, calls: Sequence[Any], skip: Collection[str], limits: StaticScheme | Mapping[str, Any]
) -> tuple[Module, int]:
    """``model``, a copy that is changed, with its static layers, and how many there are.

    ``limits`` are those of what each layer to be quantized takes, or a scheme whose observers find them.
    """
    flow = Flow(model, calls[0])
    fold_norms(model, flow, skip)
    known = None if isinstance(limits, StaticScheme) else limits
    taken = [
        path
        for path, layer in flow.layers.items()
        if path not in skip and flow.calls[path] and quantizable(layer) and (known is None or path in known)
    ]
    plans = {path: _Plan(flow, path, taken) for path in taken}
    ends = {path: plan.end for path, plan in plans.items() if plan.sinks}
    if isinstance(limits, StaticScheme):
        places = [
            *((path, path, True) for path in taken),
            *((path, end, False) for path, end in ends.items()),
        ]
        observers = [(path, end, before, limits.observer()) for path, end, before in places]
        _calibrate(model, calls, [(end, observer, before) for _, end, before, observer in observers])
        steps = {path: steps_of(*_finite(path, *o.limits())) for path, _, before, o in observers if before}
        out = {path: steps_of(*_finite(path, *o.limits())) for path, _, before, o in observers if not before}
    else:
        steps = {path: steps_of(*_finite(path, *limits[path])) for path in taken}
        out = {path: steps[plans[path].sinks[0]] for path in ends}
    for path in ends:
        for sink in plans[path].sinks:
            steps[sink] = out[path]
    for path, plan in plans.items():
        layer = flow.layers[path]
        made: Any = StaticLinear if type(layer) is nn.Linear else StaticConv
        (x_step, x_zero), (out_step, out_zero) = steps[path], out.get(path, (None, 0))
        numbers = {"x_step": x_step, "x_zero": x_zero, "out_step": out_step, "out_zero": out_zero}
        model = replace(model, path, made.of(layer, relu=bool(plan.relu), **numbers))
        if plan.relu:
            model = replace(model, plan.relu, Folded().train(layer.training))
        for pool in plan.pools:
            model = replace(model, pool, StaticMaxPool.of(flow.layers[pool]))
    return model, len(taken)


def _calibrate(
    model: Module, calls: Sequence[Any], watched: Sequence[tuple[str, RangeObserver, bool]]
) -> None:
    def entering(observer: RangeObserver) -> Callable[..., None]:
        return lambda module, args: observer.observe(args[0].detach())

    def leaving(observer: RangeObserver) -> Callable[..., None]:
        return lambda module, args, output: observer.observe(output.detach())

    modules = dict(model.named_modules())
    handles = [
        (
            modules[path].register_forward_pre_hook(entering(observer))
            if before
            else modules[path].register_forward_hook(leaving(observer))
        )
        for path, observer, before in watched
    ]
    try:
        for number, call in enumerate(calls):
            args, kwargs = call_of(call)
            with running(model, number):
                model(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()


def _finite(path: str, low: float, high: float) -> tuple[float, float]:
    if not -float("inf") < low <= high < float("inf"):
        raise QuantizationError(
            f"what passes '{path}' in calibration lies between {low} and {high}: no step fits it. Look for"
            " numbers that are not finite in the data."
        )
    return low, high
