"""Markers in ``concrete_args`` for values that remain arguments."""

from __future__ import annotations


class PHBase:
    """A value that remains an argument of the traced program."""

    def __repr__(self) -> str:
        return "PH"


class PHWithMeta(PHBase):
    """A marker whose attributes are copied to its node: ``ph_key``, if given, and those set on this
    object."""

    def __init__(self, ph_key: str | None = None) -> None:
        super().__init__()
        self.ph_key = ph_key

    def transfer(self, node: object) -> None:
        """Set this object's attributes on a node."""


PH = PHBase()
