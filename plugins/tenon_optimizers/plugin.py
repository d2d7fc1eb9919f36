"""Declares the first-party optimizers and learning-rate schedules."""

from collections.abc import Mapping

from tenon.extend import hookimpl

_FORMULAS = (
    "ConstantLR",
    "CosineAnnealingLR",
    "ExponentialLR",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "StepLR",
)
_MADE_OF_OTHERS = ("ReduceLROnPlateau", "SequentialLR")


@hookimpl
def tenon_optimizers() -> Mapping[str, str]:
    """One module per optimizer."""
    return {
        "SGD": "tenon_optimizers.sgd:SGD",
        "Adam": "tenon_optimizers.adam:Adam",
        "AdamW": "tenon_optimizers.adamw:AdamW",
        "RMSprop": "tenon_optimizers.rmsprop:RMSprop",
        "Adagrad": "tenon_optimizers.adagrad:Adagrad",
    }


@hookimpl
def tenon_schedulers() -> Mapping[str, str]:
    """All schedules, by PyTorch's names."""
    targets = {name: f"tenon_optimizers.schedules:{name}" for name in _FORMULAS}
    return targets | {name: f"tenon_optimizers.meta_schedules:{name}" for name in _MADE_OF_OTHERS}
