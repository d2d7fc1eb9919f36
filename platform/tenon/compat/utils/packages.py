"""Packages with a function and a submodule of one name, as torch has some (``torch.autograd.gradcheck``)."""

from __future__ import annotations

import sys
import types


class _Package(types.ModuleType):
    """A package whose functions stay where an importer binds a submodule."""

    def __setattr__(self, name: str, value: object) -> None:
        if isinstance(value, types.ModuleType) and isinstance(vars(self).get(name), types.FunctionType):
            return
        super().__setattr__(name, value)


def functions_first(package: str) -> None:
    """Keep the functions of ``package``, whoever imports the submodules of their names.

    Python binds a submodule once, before the function takes its place. Whoever imports it by another name (an
    importer that finds ``tenon`` where ``torch`` is asked for) has it bound again.
    """
    sys.modules[package].__class__ = _Package
