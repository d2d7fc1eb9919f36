"""Keep old files readable: every change of a schema comes with a function that upgrades documents.

A document (the manifest of a safetensors file, the sections of a training checkpoint, or a plugin's own
section) has the version of its schema. Reading applies the steps from that version to the current one in
turn, so that each step converts between two consecutive versions only. A newer version raises an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from tenon.errors import CheckpointError, CheckpointVersionError
from tenon.serialize.limits import short

#: A document, as loaded from a file; its schema states the types of the values.
Document: TypeAlias = dict[str, Any]
#: Upgrades a document by one version.
Step: TypeAlias = Callable[[Document], Document]


class Migrations:
    """The steps of one kind of document, up to version ``current``.

    >>> plans = Migrations("plan", current=2)
    >>> @plans.step(since=1)
    ... def rename_rate(document):
    ...     return {"lr": document["rate"]}
    >>> plans.upgrade({"rate": 0.1}, version=1, source="'a.plan'")
    {'lr': 0.1}
    """

    def __init__(self, kind: str, current: int) -> None:
        self.kind = kind
        self.current = current
        self._steps: dict[int, Step] = {}

    def step(self, since: int) -> Callable[[Step], Step]:
        """Register a function from version ``since`` to ``since + 1``."""

        def register(function: Step) -> Step:
            if not 1 <= since < self.current:
                raise ValueError(
                    f"a {self.kind} of version {since} needs no step: versions are 1 to {self.current}."
                )
            if since in self._steps:
                raise ValueError(
                    f"a {self.kind} of version {since} already has the step {self._steps[since]!r}."
                )
            self._steps[since] = function
            return function

        return register

    def upgrade(self, document: Document, version: object, source: str) -> Document:
        """``document``, which has ``version``, in the current version; ``source`` names its file."""
        if type(version) is not int or version < 1:
            raise CheckpointError(
                f"cannot load {source}: its {self.kind} has the impossible schema version {short(version)}."
            )
        if version > self.current:
            raise CheckpointVersionError(
                f"cannot load {source}: its {self.kind} has schema version {short(version)}, and this "
                f"version of tenon reads up to {self.current}. Upgrade tenon to read it."
            )
        for number in range(version, self.current):
            if number not in self._steps:
                raise CheckpointError(
                    f"cannot load {source}: no step leads from version {number} of a {self.kind} to the next."
                )
            document = self._steps[number](document)
        return document


#: The manifest of a safetensors file.
MANIFEST = Migrations("manifest", current=1)

#: The sections of a training checkpoint.
CHECKPOINT = Migrations("training checkpoint", current=1)
