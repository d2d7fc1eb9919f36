"""Declares the first-party optimizers and learning-rate schedules."""

from collections.abc import Mapping

from tenon.extend import hookimpl

_SCHEDULES = {
    "schedules": (
        "ConstantLR",
        "CosineAnnealingLR",
        "ExponentialLR",
        "LambdaLR",
        "LinearLR",
        "MultiStepLR",
        "MultiplicativeLR",
        "PolynomialLR",
        "StepLR",
    ),
    "cycles": ("CosineAnnealingWarmRestarts", "CyclicLR", "OneCycleLR"),
    "meta_schedules": ("ChainedScheduler", "SequentialLR"),
    "plateau": ("ReduceLROnPlateau",),
}


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
    return {
        name: f"tenon_optimizers.{module}:{name}" for module, names in _SCHEDULES.items() for name in names
    }
