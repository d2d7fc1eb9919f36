"""Keep old files readable: every change of a schema comes with a function from the version before.

A document (the manifest of a safetensors file, the sections of a training checkpoint, or a plugin's own
section) carries the version that wrote it. Reading applies the steps in between, one after another, so
each step only knows two neighbouring versions. A document from the future is refused with its version.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenon.errors import CheckpointError, CheckpointVersionError

Step = Callable[[dict[str, Any]], dict[str, Any]]


class Migrations:
    """The steps of one kind of document, up to version ``current``.

    >>> plans = Migrations("plan", current=2)
    >>> @plans.step(since=1)
    ... def rename_rate(document):
    ...     return {"lr": document["rate"]}
    >>> plans.upgrade({"rate": 0.1}, version=1, source="'a.plan'")
    {'lr': 0.1}
    """

    def __init__(self, what: str, current: int) -> None:
        self.what = what
        self.current = current
        self._steps: dict[int, Step] = {}

    def step(self, since: int) -> Callable[[Step], Step]:
        """Register a function from version ``since`` to ``since + 1``."""

        def register(function: Step) -> Step:
            if not 1 <= since < self.current:
                raise ValueError(
                    f"a {self.what} of version {since} needs no step: versions are 1 to {self.current}."
                )
            if since in self._steps:
                raise ValueError(
                    f"a {self.what} of version {since} already has the step {self._steps[since]!r}."
                )
            self._steps[since] = function
            return function

        return register

    def upgrade(self, document: dict[str, Any], version: Any, source: str) -> dict[str, Any]:
        """``document`` in the current version."""
        if type(version) is not int or version < 1:
            raise CheckpointError(
                f"cannot load {source}: its {self.what} has the impossible schema version {version!r}."
            )
        if version > self.current:
            raise CheckpointVersionError(
                f"cannot load {source}: its {self.what} has schema version {version}, and this tenon knows "
                "versions up to "
                f"{self.current}. Upgrade tenon to read it."
            )
        for number in range(version, self.current):
            if number not in self._steps:
                raise CheckpointError(
                    f"cannot load {source}: no step leads from version {number} of a {self.what} to the next."
                )
            document = self._steps[number](document)
        return document


#: The manifest of a safetensors file.
MANIFEST = Migrations("manifest", current=1)

#: The sections of a training checkpoint.
CHECKPOINT = Migrations("training checkpoint", current=1)
