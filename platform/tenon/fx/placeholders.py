"""Marks in ``concrete_args`` for arguments that stay arguments."""

from __future__ import annotations


class PHBase:
    """A value that stays an argument of the traced program."""

    def __repr__(self) -> str:
        return "PH"


class PHWithMeta(PHBase):
    """One whose node gets attributes: ``ph_key``, if it is given, and those set on this object."""

    def __init__(self, ph_key: str | None = None) -> None:
        super().__init__()
        self.ph_key = ph_key

    def transfer(self, node: object) -> None:
        """Set this object's attributes on a node."""


PH = PHBase()
