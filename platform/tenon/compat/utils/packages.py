"""Packages that have a function and a submodule of the same name, such as ``torch.autograd.gradcheck``."""

from __future__ import annotations

import sys
import types


class _Package(types.ModuleType):
    """A package whose functions are not replaced when a submodule of their name is imported."""

    def __setattr__(self, name: str, value: object) -> None:
        if isinstance(value, types.ModuleType) and isinstance(vars(self).get(name), types.FunctionType):
            return
        super().__setattr__(name, value)


def functions_first(package: str) -> None:
    """Keep the functions of ``package`` when submodules of their names are imported.

    Python binds a submodule in its package once, before the function of its name is bound. An import by
    another name (through an import hook that finds ``tenon`` for ``torch``) would bind the submodule again.
    """
    sys.modules[package].__class__ = _Package
