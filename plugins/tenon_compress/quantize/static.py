"""Static int8: the ranges of activations are observed, and layers are replaced by ones with fixed scales.

In order: a ``CallGraph`` finds the readers of each layer; batch norms are folded into the layers before them;
calibration data run through the model while observers see the inputs and results of layers; then layers are
replaced. A rectifier becomes part of the layer before it; one that serves several layers, or that is a
function, remains and changes nothing. A result is uint8 if only int8 layers read it, directly or through
modules and ops that pass quantized values on (max pools, views, dropout), and float32 elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar

from tenon import Tensor, as_tensor, float32, nn
from tenon.errors import QuantizationError
from tenon.extend import Op, errors, resolve, settings
from tenon.nn.module import Module
from tenon.nn.utils.fusion import fuse_conv_bn_weights, fuse_linear_bn_weights
from tenon.ops import relu
from tenon_compress.quantize.call_graph import CallGraph, running
from tenon_compress.quantize.integers import Limits, check_float32
from tenon_compress.quantize.scheme import Scheme, replace
from tenon_compress.quantize.static_layers import (
    Folded,
    StaticConv,
    StaticLinear,
    StaticMaxPool,
    Steps,
    padding_of,
)
from tenon_compress.receipt import Example, call_of

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)
_PASSING = (nn.Identity, Folded, nn.Flatten, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


class RangeObserver:
    """Base class of observers, which determine the range of the values at one point of a model."""

    def observe(self, x: Tensor) -> None:
        """Observe a float tensor; it is neither changed nor kept."""
        raise NotImplementedError

    def limits(self) -> Limits:
        """Return the smallest and largest value to represent; for a weight also of each output."""
        raise NotImplementedError


class StaticScheme(Scheme):
    """A scheme with observers that determine the scales of activations."""

    calibrates: ClassVar[bool] = True

    def observer(self) -> RangeObserver:
        """Return a new observer for one activation."""
        raise NotImplementedError

    def weight_observer(self) -> RangeObserver | None:
        """Return a new observer for one weight; None to use the largest magnitude in each output."""
        return None


def observer_of(name: str) -> RangeObserver:
    """Return a new observer of the class that a plugin declares as ``name``."""
    cls = resolve("quantizers", name)
    if not (isinstance(cls, type) and issubclass(cls, RangeObserver)):
        raise QuantizationError(f"{name!r} is not an observer. Name one, such as 'MinMax' or 'Histogram'.")
    return cls()


def steps_of(low: float, high: float) -> tuple[float, int]:
    """Return ``(step, zero)``, the scale and zero point of uint8 for values from ``low`` to ``high``.

    0 is represented exactly.
    """
    if not (math.isfinite(low) and math.isfinite(high)):
        raise QuantizationError(
            f"no scale fits numbers from {low} to {high}: some of them are not finite. Check the "
            "calibration data."
        )
    low, high = min(low, 0.0), max(high, 0.0)
    step = (high - low) / 255 or 1.0
    return step, min(255, max(0, round(-low / step)))


class Int8(StaticScheme):
    """``Linear`` and ``Conv1d`` to ``Conv3d``.

    ``observer`` names the observer of activations, ``weights`` that of weights.
    """

    name = "int8"

    def __init__(self, observer: str = "Histogram", weights: str = "PerChannelMinMax") -> None:
        for name, value in (("observer", observer), ("weights", weights)):
            settings.instance("Int8", name, value, str, "the name of an observer")
            try:
                observer_of(value)
            except (errors.PluginNotFoundError, QuantizationError) as error:
                raise QuantizationError(f"Int8: {name}={value!r}: {error}") from None
        self.observer_name, self.weight_observer_name = observer, weights

    def observer(self) -> RangeObserver:
        """Return a new observer of the named class."""
        return observer_of(self.observer_name)

    def weight_observer(self) -> RangeObserver:
        """Return a new weight observer of the named class."""
        return observer_of(self.weight_observer_name)


def fold_norms(model: Module, graph: CallGraph, skip: Collection[str] = ()) -> None:
    """Fold batch norms into the convolution or linear layer before them, if nothing else reads its result."""
    for path, layer in graph.layers.items():
        norm_path = graph.only_reader_of(path)
        norm: Any = graph.layers.get(norm_path)  # a batch norm, by the check of its type below
        if path in skip or norm_path in skip or type(layer) not in (*_CONVOLUTIONS, *_TRANSPOSED, nn.Linear):
            continue
        if not (graph.called_once(path) and graph.called_once(norm_path)):
            continue
        if type(norm) not in _NORMS or norm.running_mean is None:
            continue
        if type(layer) is nn.Linear and graph.ranks[path] != 2:
            continue  # the norm's channels are the second axis, the product's features the last
        statistics = (norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias)
        if type(layer) is nn.Linear:
            fused = fuse_linear_bn_weights(layer.weight, layer.bias, *statistics)
        else:
            fused = fuse_conv_bn_weights(layer.weight, layer.bias, *statistics, type(layer) in _TRANSPOSED)
        layer.weight, layer.bias = fused
        replace(model, norm_path, Folded().train(norm.training))
        graph.layers[norm_path] = graph.nodes[norm_path] = model.get_submodule(norm_path)


def quantizable(layer: Module) -> bool:
    """Whether there is a static int8 layer for ``layer``."""
    if type(layer) in _CONVOLUTIONS:
        return layer.padding_mode == "zeros" and padding_of(layer) is not None
    return type(layer) is nn.Linear


class _Plan:
    """Where a layer's result goes, after its rectifier, and which layers read it as uint8."""

    def __init__(self, graph: CallGraph, path: str, quantized_paths: Collection[str]) -> None:
        #: The range of the result, whether a rectifier is applied to it, and the rectifier that is folded.
        self.low, self.high = -float("inf"), float("inf")
        self.relu, self.folded = False, ""
        self.sinks: list[str] = []
        self.pools: list[str] = []
        if not graph.called_once(path):
            return
        end, following = path, graph.only_reader_of(path)
        while following and type(graph.nodes[following]) in (nn.Identity, Folded):
            end, following = following, graph.only_reader_of(following)
        activation = graph.nodes.get(following)
        if activation is relu or type(activation) is nn.ReLU:
            self.relu, self.low, end = True, 0.0, following
        elif (
            type(activation) is nn.ReLU6
            and graph.called_once(following)
            and self._collect(graph, following, quantized_paths)
        ):
            # Quantization to steps up to 6 clips by itself.
            self.low, self.high, self.folded = 0.0, 6.0, following
            return
        if not self._collect(graph, end, quantized_paths):
            self.sinks, self.pools = [], []
        if self.relu and graph.called_once(following):
            self.folded = following
        self.relu = self.relu and bool(self.folded or self.sinks)

    def _collect(self, graph: CallGraph, node: str, quantized_paths: Collection[str]) -> bool:
        """Whether only layers in ``quantized_paths`` read ``node``; collect them and the pools between."""
        for reader in graph.readers[node]:
            if reader and reader in quantized_paths and graph.called_once(reader):
                self.sinks.append(reader)
            elif (
                not reader
                or not self._passes(graph, reader)
                or not self._collect(graph, reader, quantized_paths)
            ):
                return False
        return bool(graph.readers[node])

    def _passes(self, graph: CallGraph, reader: str) -> bool:
        """Whether the node ``reader`` does the same to quantized values as to the values they stand for."""
        target = graph.nodes[reader]
        if target is relu or type(target) is nn.ReLU:
            return self.relu  # then 0 is the first step
        if type(target) in _POOLS and graph.called_once(reader):
            dilated = target.dilation not in (1, (1,), (1, 1), (1, 1, 1))
            self.pools.append(reader)
            return not (target.return_indices or target.ceil_mode or dilated)
        return type(target) in _PASSING or isinstance(target, Op)

    def steps(self, limits: tuple[float, float]) -> tuple[float, int]:
        """Return scale and zero point of the result, whose values are between ``limits``."""
        return steps_of(max(limits[0], self.low), min(limits[1], self.high))


def convert(
    model: Module,
    calls: Sequence[Example],
    skip: Collection[str],
    limits: StaticScheme | Mapping[str, tuple[float, float]],
) -> tuple[Module, int]:
    """Replace layers of ``model`` by static ones; return the model and their number.

    ``limits`` are those of the input of each layer to be quantized, or a scheme whose observers determine
    them.
    """
    graph = CallGraph(model, calls[0])
    fold_norms(model, graph, skip)
    known = None if isinstance(limits, StaticScheme) else limits
    quantized_paths = [
        path
        for path, layer in graph.layers.items()
        if path not in skip and graph.calls[path] and quantizable(layer) and (known is None or path in known)
    ]
    for path in quantized_paths:
        check_float32(f"'{path}.weight'" if path else "'weight'", graph.layers[path].weight)
    plans = {path: _Plan(graph, path, quantized_paths) for path in quantized_paths}
    ends = [path for path, plan in plans.items() if plan.sinks]
    if isinstance(limits, StaticScheme):
        entering, leaving = ({path: limits.observer() for path in paths} for paths in (quantized_paths, ends))
        _calibrate(model, calls, entering, {p: (o, plans[p]) for p, o in leaving.items()})
        steps = {path: steps_of(*_finite(path, *o.limits())) for path, o in entering.items()}
        out = {path: plans[path].steps(_finite(path, *o.limits())) for path, o in leaving.items()}
    else:
        steps = {path: steps_of(*_finite(path, *limits[path])) for path in quantized_paths}
        out = {path: plans[path].steps(limits[plans[path].sinks[0]]) for path in ends}
    for path in ends:
        for sink in plans[path].sinks:
            steps[sink] = out[path]
    for path, plan in plans.items():
        layer = graph.layers[path]
        static: type[StaticLinear] | type[StaticConv] = (
            StaticLinear if type(layer) is nn.Linear else StaticConv
        )
        (x_step, x_zero), (out_step, out_zero) = steps[path], out.get(path, (None, 0))
        numbers: Steps = {
            "x_step": x_step, "x_zero": x_zero, "out_step": out_step, "out_zero": out_zero, "relu": plan.relu,
        }  # fmt: skip
        weight_observer = limits.weight_observer() if isinstance(limits, StaticScheme) else None
        own = None if weight_observer is None else _weight_limits(path, layer, weight_observer)
        model = replace(model, path, static.of(layer, own, **numbers))
        if plan.folded:
            model = replace(model, plan.folded, Folded().train(layer.training))
        for pool in plan.pools:
            model = replace(model, pool, StaticMaxPool.of(graph.layers[pool]))
    return model, len(quantized_paths)


def _calibrate(
    model: Module,
    calls: Sequence[Example],
    entering: Mapping[str, RangeObserver],
    leaving: Mapping[str, tuple[RangeObserver, _Plan]],
) -> None:
    def observe(observer: RangeObserver, x: Tensor) -> None:
        if x.numel():
            observer.observe(x.detach())

    def before(observer: RangeObserver) -> Callable[..., None]:
        return lambda module, args, kwargs: observe(observer, args[0] if args else kwargs["input"])

    def after(observer: RangeObserver, plan: _Plan) -> Callable[..., None]:
        return lambda module, args, output: observe(observer, output.clamp(plan.low, plan.high))

    modules = dict(model.named_modules())
    handles = [
        modules[path].register_forward_pre_hook(before(o), with_kwargs=True) for path, o in entering.items()
    ]
    handles += [modules[path].register_forward_hook(after(*pair)) for path, pair in leaving.items()]
    try:
        for number, call in enumerate(calls):
            args, kwargs = call_of(call)
            with running(model, number):
                model(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()


def _weight_limits(path: str, layer: Module, observer: RangeObserver) -> tuple[Tensor, Tensor]:
    """Return the limits of the weight by ``observer``: one pair, or one for each output."""
    observer.observe(layer.weight.detach())
    low, high = (as_tensor(limit, dtype=float32) for limit in observer.limits())
    if any(tuple(t.shape) not in ((), (layer.weight.shape[0],)) for t in (low, high)):
        raise QuantizationError(
            f"'{path}.weight' has {layer.weight.shape[0]} outputs, and {type(observer).__name__} returns"
            f" limits of shape {list(low.shape)} and {list(high.shape)}: give one number, or one for each"
            " output."
        )
    return low, high


def _finite(path: str, low: Any, high: Any) -> tuple[float, float]:  # Any: the check that they are numbers
    if any(getattr(limit, "shape", ()) for limit in (low, high)):
        raise QuantizationError(
            f"the activation at '{path}' has one scale, but its observer returns limits of shape "
            f"{list(low.shape)}: name one that returns two numbers, such as 'Histogram'. Those of each "
            "channel are for weights."
        )
    if low > high:
        raise QuantizationError(
            f"no number reached '{path}' in calibration: its inputs are empty. Pass batches of one example or"
            " more."
        )
    if not -float("inf") < low <= high < float("inf"):
        raise QuantizationError(
            f"the values at '{path}' in calibration are between {low} and {high}, which no scale represents."
            " Check the data for numbers that are not finite."
        )
    return low, high
