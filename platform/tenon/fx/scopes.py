"""The scope of a traced program: the module whose ``forward`` runs, and the modules around it."""

from __future__ import annotations

import copy
from typing import Any


class Scope:
    """The path and the class of a module."""

    def __init__(self, module_path: str, module_type: Any) -> None:  # a class, or None outside of modules
        self.module_path = module_path
        self.module_type = module_type


class ScopeContextManager:
    """Sets ``scope`` to ``current_scope`` within its block."""

    def __init__(self, scope: Scope, current_scope: Scope) -> None:
        self._prev_scope = copy.copy(scope)
        scope.module_path = current_scope.module_path
        scope.module_type = current_scope.module_type
        self._scope = scope

    def __enter__(self) -> Scope:
        return self._scope

    def __exit__(self, *exc: object) -> None:
        self._scope.module_path = self._prev_scope.module_path
        self._scope.module_type = self._prev_scope.module_type
