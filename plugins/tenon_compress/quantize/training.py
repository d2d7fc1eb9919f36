"""Quantization-aware training, and the steps prepare, run, convert by PyTorch's names.

``FakeQuantize`` is a step in the pipeline of a weight like any parametrization, so it composes with others
and with pruning in every order: the layer computes with numbers that int8 can hold, and gradients pass to the
weight as if nothing were rounded. Scales belong to rows, so that folding a batch norm, which scales rows,
afterwards changes no rounded number. ``InputObserver`` does the same to the input of a layer,
within limits that it learns by running.
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

#: What a prepared model remembers of its first call.
_FIRST = "_first_call"


class FakeQuantize(Module):
    """A parametrization: the weight as ``to_int8`` and back would give it; gradients pass straight through.

    >>> import tenon
    >>> layer = tenon.nn.Linear(4, 2)
    >>> _ = tenon.nn.utils.parametrize.register_parametrization(layer, "weight", FakeQuantize())
    >>> len((layer.weight[0] / layer.weight[0].abs().max() * 127).round().unique()) <= 4
    True
    """

    def forward(self, weight: Tensor) -> Tensor:
        """Each row at the nearest of 255 steps."""
        plain = weight.detach()
        size = plain.reshape(plain.shape[0], -1).abs().amax(1)
        step = (size / LARGEST).masked_fill(size == 0, 1).reshape(-1, *(1,) * (plain.dim() - 1))
        return weight + ((plain / step).round() * step - plain)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """What is assigned is stored as it is."""
        return weight


class InputObserver(Module):
    """Observes the limits of a layer's input, as moving averages.

    With ``fake`` the input is rounded to the 256 steps between them, and only training moves the limits.
    """

    low: Tensor
    high: Tensor

    def __init__(self, fake: bool, share: float = 0.01) -> None:
        super().__init__()
        self.fake, self.share = fake, share
        self.register_buffer("low", full((), float("inf")))
        self.register_buffer("high", full((), -float("inf")))

    def forward(self, x: Tensor) -> Tensor:
        """``x``, rounded within the limits where it is to be; what lies outside gets no gradient."""
        if not x.numel():
            return x
        with no_grad():
            if self.training or not self.fake or bool(self.low > self.high):
                self._see(x)
            if not self.fake:
                return x
            step, zero = self._steps() if self.training else steps_of(*self.limits())
        inside = x.clamp(-zero * step, (255 - zero) * step)
        plain = inside.detach()
        return inside + (((plain / step + zero).round() - zero) * step - plain)

    def _see(self, x: Tensor) -> None:
        first = self.low > self.high
        for held, now in ((self.low, x.min()), (self.high, x.max())):
            before = now.where(first, held)
            held.copy_(before + self.share * (now - before))

    def _steps(self) -> tuple[Tensor, Tensor]:
        """``steps_of`` the limits, as tensors: nothing is read, so that a compiled step can do it."""
        low, high = self.low.double().clamp(max=0), self.high.double().clamp(min=0)
        step = (high - low) / 255
        step = step.masked_fill(step == 0, 1)
        return step, (-low / step).round().clamp(0, 255)

    def limits(self) -> tuple[float, float]:
        """The limits."""
        return float(self.low), float(self.high)


Watched = InputObserver  # what pickles of version 0.1 name


def _remember(module: Module, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
    """The first call of a prepared model, as an example: positional arguments, or all by name."""
    if _FIRST not in module.__dict__ and not (args and kwargs):
        module.__dict__[_FIRST] = kwargs or args


def _watch(
    module: Module, args: Sequence[object], kwargs: Mapping[str, object]
) -> tuple[Sequence[object], Mapping[str, object]]:
    watched = getattr(module, INPUT_OBSERVER)
    if args:
        return (watched(args[0]), *args[1:]), kwargs
    return args, {**kwargs, "input": watched(kwargs["input"])}


def prepare(model: Module, *, skip: Collection[str] = ()) -> Module:
    """A copy of ``model`` that watches the inputs of its layers; run data through it, then ``convert`` it."""
    return _prepared(model, skip, "prepare").eval()


def prepare_qat(model: Module, *, skip: Collection[str] = ()) -> Module:
    """A copy of ``model`` to train: it computes with weights and activations as int8 would have them.

    Its parameters are new tensors: make the optimizer for it. ``convert`` it afterwards.
    """
    return _prepared(model, skip, "prepare_qat").train()


def _prepared(model: Module, skip: Collection[str], what: str) -> Module:
    skip = skipped(model, skip, what)
    check_unprepared(model, what)
    made = copy.deepcopy(model)
    found = [(p, m) for p, m in made.named_modules() if p not in skip and quantizable(m)]
    if not found:
        raise QuantizationError(f"this {type(model).__name__} has no linear or convolution layer to prepare.")
    for path, module in found:
        check_weights(path, module)
        setattr(module, INPUT_OBSERVER, InputObserver(what == "prepare_qat"))
        module.register_forward_pre_hook(_watch, with_kwargs=True)
        if what == "prepare_qat":
            register_parametrization(module, "weight", FakeQuantize())
    made.register_forward_pre_hook(_remember, with_kwargs=True)
    return made


def convert(model: Module, example: Tensor | None = None) -> Module:
    """The int8 model of a prepared one that has run.

    ``example`` is what it is called with; without it the first call is, that the prepared model has seen.
    """
    made = copy.deepcopy(model)
    first = made.__dict__.pop(_FIRST, None)
    for key, hook in list(made._forward_pre_hooks.items()):
        if hook is _remember:
            del made._forward_pre_hooks[key], made._forward_pre_hooks_with_kwargs[key]
    limits = {}
    for path, module in list(made.named_modules()):
        watched = module._modules.get(INPUT_OBSERVER)
        if not isinstance(watched, InputObserver):
            continue
        if bool(watched.low > watched.high):
            raise QuantizationError(
                f"nothing has passed '{path}' yet. Run the prepared model before you convert it."
            )
        limits[path] = watched.limits()
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
    made, _ = convert_static(made.eval(), [example], (), limits=limits)
    note_structure(made)
    return made
