"""PyTorch's ``quantize_dynamic`` and ``fuse_modules``; ``prepare`` and ``convert`` are in ``training``."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tenon import int8, nn, qint8
from tenon.errors import QuantizationError
from tenon.nn.module import Module
from tenon.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval
from tenon_compress.quantize.api import converted
from tenon_compress.quantize.scheme import replace, scheme_of

#: PyTorch's dtype of int8 weights, which is only a name here: weights are stored as plain int8.
_QINT8 = qint8
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_FUSED = (nn.Conv1d, nn.Conv2d, nn.Conv3d, *_TRANSPOSED, nn.Linear)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def quantize_dynamic(
    model: Module,
    qconfig_spec: Collection[type | str] | None = None,
    dtype: object = _QINT8,
    mapping: Mapping[type, type] | None = None,
    inplace: bool = False,
) -> Module:
    """Quantize layers as ``quantize(model, "int8-dynamic")`` does: all, or those in ``qconfig_spec``.

    ``qconfig_spec`` holds classes of layers, paths of modules, or both. ``dtype`` is ``qint8``. ``inplace``
    replaces the layers in ``model`` itself, which must not be such a layer itself.
    """
    if dtype not in (_QINT8, int8):
        raise QuantizationError(
            f"quantize_dynamic computes in int8, not {dtype}. For smaller files see tenon.quantize(model,"
            " 'bfloat16-weights')."
        )
    if mapping is not None:
        raise QuantizationError(
            "quantize_dynamic takes no mapping: a scheme defines what replaces a layer. Derive"
            " one from tenon.extend.quantization.Scheme and call tenon.quantize."
        )
    result = _dynamic(model, qconfig_spec)
    if not inplace:
        return result
    if type(result) is not type(model):
        raise QuantizationError(
            f"this {type(model).__name__} cannot become a {type(result).__name__} in place."
        )
    vars(model).update(vars(result))
    return model


def _dynamic(model: Module, qconfig_spec: Collection[type | str] | None) -> Module:
    if qconfig_spec is None:
        return converted(model, scheme_of("int8-dynamic"), [])
    known = dict(model.named_modules())
    unknown = sorted(str(s) for s in qconfig_spec if not isinstance(s, type) and s not in known)
    if unknown:
        raise QuantizationError(
            f"qconfig_spec names {unknown}, which this {type(model).__name__} does not have."
        )

    def selected(path: str) -> bool:
        parts = path.split(".")
        paths = {".".join(parts[: n + 1]) for n in range(len(parts))} | {""}
        return type(known[path]) in qconfig_spec or not paths.isdisjoint(qconfig_spec)

    return converted(model, scheme_of("int8-dynamic"), [], [path for path in known if not selected(path)])


def fuse_modules(
    model: Module, modules_to_fuse: Sequence[str] | Sequence[Sequence[str]], inplace: bool = False
) -> Module:
    """Fold batch norms into the layers before them, in a copy of ``model`` or ``inplace``; return it.

    The model has to be in evaluation mode. ``modules_to_fuse`` is a list of paths such as ``["conv", "bn",
    "relu"]``, or several. An ``Identity`` replaces each norm; rectifiers remain. ``quantize`` does this by
    itself.
    """
    result = model if inplace else copy.deepcopy(model)
    # Lists of paths; a type checker does not distinguish the two forms by the type of the first item.
    groups: Sequence[Any] = (
        [modules_to_fuse] if modules_to_fuse and isinstance(modules_to_fuse[0], str) else modules_to_fuse
    )
    known = dict(result.named_modules())
    fused: dict[str, Module] = {}
    for group in groups:
        # Modules or None; the kinds, which are checked next, determine which.
        layers: list[Any] = [known.get(path) for path in group]
        kinds = [type(layer) for layer in layers]
        folds = len(kinds) > 1 and kinds[1] in _NORMS
        if not kinds or kinds[0] not in _FUSED or kinds[1 + folds :] not in ([], [nn.ReLU]):
            named = [
                f"{p} ({k.__name__})" if known.get(p) is not None else f"{p} (absent)"
                for p, k in zip(group, kinds, strict=True)
            ]
            raise QuantizationError(
                f"these cannot be fused: {', '.join(named) or 'none'}. Name a convolution or Linear, then its"
                " batch norm, its ReLU, or both."
            )
        if folds:
            if layers[1].training:
                raise QuantizationError("a batch norm that trains cannot be folded. Call model.eval() first.")
            if kinds[0] is nn.Linear:
                layer: Module = fuse_linear_bn_eval(layers[0], layers[1])
            else:
                layer = fuse_conv_bn_eval(layers[0], layers[1], kinds[0] in _TRANSPOSED)
            fused |= {group[0]: layer, group[1]: nn.Identity()}
    for path, layer in fused.items():
        replace(result, path, layer)
    return result
