"""Declares the optimizer; imports nothing heavy."""

from tenon.extend import hookimpl


@hookimpl
def tenon_optimizers():
    """`tenon.optim.Tiger`."""
    return {"Tiger": "tenon_tiger.tiger:Tiger"}
