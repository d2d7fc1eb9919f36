"""Declares the optimizer; imports nothing heavy."""

from tenon.extend import hookimpl


@hookimpl
def tenon_optimizers():
    """`tenon.optim.Lion`."""
    return {"Lion": "tenon_lion.lion:Lion"}
