"""Quantization-aware training, and the workflow prepare, run, convert under PyTorch's names.

``FakeQuantize`` is a step in the pipeline of a weight like any parametrization, so it composes with others
and with pruning in every order: the layer computes with values that int8 can represent, and gradients pass to
the weight straight through the rounding. Scales belong to rows, so that folding a batch norm, which scales
rows, changes no rounded value afterwards. ``InputObserver`` does the same to the input of a layer, within
limits that it observes.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from tenon import full, no_grad
from tenon.errors import QuantizationError
from tenon.nn.module import Module
from tenon.nn.utils.parametrize import register_parametrization
from tenon.ops.quantized import LARGEST
from tenon_compress.quantize.scheme import INPUT_OBSERVER, bake, check_unprepared, check_weights, skipped
from tenon_compress.quantize.static import convert as convert_static
from tenon_compress.quantize.static import quantizable, steps_of
from tenon_compress.quantize.structure import note_structure

if TYPE_CHECKING:
    from tenon import Tensor

#: The attribute in which a prepared model keeps the arguments of its first call.
_FIRST = "_first_call"


class FakeQuantize(Module):
    """A parametrization: the weight rounded as by ``to_int8`` and back; gradients pass straight through.

    >>> import tenon
    >>> layer = tenon.nn.Linear(4, 2)
    >>> _ = tenon.nn.utils.parametrize.register_parametrization(layer, "weight", FakeQuantize())
    >>> len((layer.weight[0] / layer.weight[0].abs().max() * 127).round().unique()) <= 4
    True
    """

    def forward(self, weight: Tensor) -> Tensor:
        """Round each row to the nearest of 255 steps."""
        plain = weight.detach()
        size = plain.reshape(plain.shape[0], -1).abs().amax(1)
        step = (size / LARGEST).masked_fill(size == 0, 1).reshape(-1, *(1,) * (plain.dim() - 1))
        return weight + ((plain / step).round() * step - plain)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Return ``weight``: what is assigned is stored unchanged."""
        return weight


class InputObserver(Module):
    """Observes the limits of a layer's input, as moving averages.

    With ``fake`` the input is rounded to the 256 steps between them, and only training updates the limits.
    """

    low: Tensor
    high: Tensor

    def __init__(self, fake: bool, share: float = 0.01) -> None:
        super().__init__()
        self.fake, self.share = fake, share
        self.register_buffer("low", full((), float("inf")))
        self.register_buffer("high", full((), -float("inf")))

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x``, if ``fake`` rounded within the limits; values outside get no gradient."""
        if not x.numel():
            return x
        with no_grad():
            if self.training or not self.fake or bool(self.low > self.high):
                self._observe(x)
            if not self.fake:
                return x
            step, zero = self._steps() if self.training else steps_of(*self.limits())
        inside = x.clamp(-zero * step, (255 - zero) * step)
        plain = inside.detach()
        return inside + (((plain / step + zero).round() - zero) * step - plain)

    def _observe(self, x: Tensor) -> None:
        first = self.low > self.high
        for bound, now in ((self.low, x.min()), (self.high, x.max())):
            before = now.where(first, bound)
            bound.copy_(before + self.share * (now - before))

    def _steps(self) -> tuple[Tensor, Tensor]:
        """Return ``steps_of`` the limits as tensors: no value is read, so that it can be compiled."""
        low, high = self.low.double().clamp(max=0), self.high.double().clamp(min=0)
        step = (high - low) / 255
        step = step.masked_fill(step == 0, 1)
        return step, (-low / step).round().clamp(0, 255)

    def limits(self) -> tuple[float, float]:
        """Return the observed limits."""
        return float(self.low), float(self.high)


Watched = InputObserver  # what pickles of version 0.1 name


def _remember(module: Module, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
    """Keep the first call of a prepared model as an example: positional arguments, or keyword arguments."""
    if _FIRST not in module.__dict__ and not (args and kwargs):
        module.__dict__[_FIRST] = kwargs or args


def _watch(
    module: Module, args: Sequence[object], kwargs: Mapping[str, object]
) -> tuple[Sequence[object], Mapping[str, object]]:
    observer = getattr(module, INPUT_OBSERVER)
    if args:
        return (observer(args[0]), *args[1:]), kwargs
    return args, {**kwargs, "input": observer(kwargs["input"])}


def prepare(model: Module, *, skip: Collection[str] = ()) -> Module:
    """Return a copy of ``model`` that observes its layers' inputs: run data through it and ``convert`` it."""
    return _prepared(model, skip, "prepare").eval()


def prepare_qat(model: Module, *, skip: Collection[str] = ()) -> Module:
    """Return a copy of ``model`` for training, which computes with weights and activations rounded to int8.

    Its parameters are new tensors: create the optimizer for it. ``convert`` it afterwards.
    """
    return _prepared(model, skip, "prepare_qat").train()


def _prepared(model: Module, skip: Collection[str], caller: str) -> Module:
    skip = skipped(model, skip, caller)
    check_unprepared(model, caller)
    prepared = copy.deepcopy(model)
    layers = [(p, m) for p, m in prepared.named_modules() if p not in skip and quantizable(m)]
    if not layers:
        raise QuantizationError(f"this {type(model).__name__} has no linear or convolution layer to prepare.")
    for path, module in layers:
        check_weights(path, module)
        setattr(module, INPUT_OBSERVER, InputObserver(caller == "prepare_qat"))
        module.register_forward_pre_hook(_watch, with_kwargs=True)
        if caller == "prepare_qat":
            register_parametrization(module, "weight", FakeQuantize())
    prepared.register_forward_pre_hook(_remember, with_kwargs=True)
    return prepared


def convert(model: Module, example: Tensor | None = None) -> Module:
    """Convert a prepared model that has run to int8; return the new model.

    ``example`` is what it is called with; the default is the first call of the prepared model.
    """
    result = copy.deepcopy(model)
    first = result.__dict__.pop(_FIRST, None)
    for key, hook in list(result._forward_pre_hooks.items()):
        if hook is _remember:
            del result._forward_pre_hooks[key], result._forward_pre_hooks_with_kwargs[key]
    limits = {}
    for path, module in list(result.named_modules()):
        observer = module._modules.get(INPUT_OBSERVER)
        if not isinstance(observer, InputObserver):
            continue
        if bool(observer.low > observer.high):
            raise QuantizationError(
                f"'{path}' has seen no values yet. Run the prepared model before you convert it."
            )
        limits[path] = observer.limits()
        delattr(module, INPUT_OBSERVER)
        for key, hook in list(module._forward_pre_hooks.items()):
            if hook is _watch:
                del module._forward_pre_hooks[key], module._forward_pre_hooks_with_kwargs[key]
        bake(module)
    if not limits:
        raise QuantizationError(
            f"this {type(model).__name__} is not prepared. Call prepare or prepare_qat first."
        )
    example = first if example is None else example
    if example is None:
        raise QuantizationError("convert needs what the model is called with: give example.")
    result, _ = convert_static(result.eval(), [example], (), limits=limits)
    note_structure(result)
    return result
