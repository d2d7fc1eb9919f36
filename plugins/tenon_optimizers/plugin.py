"""Declares the first-party optimizers and learning-rate schedules."""

from collections.abc import Mapping

from tenon.extend import hookimpl

_OPTIMIZERS = {
    "adadelta": ("Adadelta",),
    "adafactor": ("Adafactor",),
    "adagrad": ("Adagrad",),
    "adam": ("Adam",),
    "adamax": ("Adamax",),
    "adamw": ("AdamW",),
    "asgd": ("ASGD",),
    "lamb": ("LAMB",),
    "lars": ("LARS",),
    "lbfgs": ("LBFGS",),
    "lion": ("Lion",),
    "muon": ("Muon",),
    "nadam": ("NAdam",),
    "radam": ("RAdam",),
    "rmsprop": ("RMSprop",),
    "rprop": ("Rprop",),
    "schedule_free": ("AdamWScheduleFree", "SGDScheduleFree"),
    "sgd": ("SGD",),
}
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
    "warmup": ("WarmupCosineLR",),
}


@hookimpl
def tenon_optimizers() -> Mapping[str, str]:
    """All optimizers, by PyTorch's names where it has them."""
    return {
        name: f"tenon_optimizers.{module}:{name}" for module, names in _OPTIMIZERS.items() for name in names
    }


@hookimpl
def tenon_schedulers() -> Mapping[str, str]:
    """All schedules, by PyTorch's names where it has them."""
    return {
        name: f"tenon_optimizers.{module}:{name}" for module, names in _SCHEDULES.items() for name in names
    }
