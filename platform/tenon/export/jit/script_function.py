"""``ScriptFunction``: a function that is a trace."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, BinaryIO, NoReturn

from tenon.errors import UnsavableError
from tenon.export.captured import CapturedGraph
from tenon.export.jit import content
from tenon.export.jit.program import STORE, Program, bound


class ScriptFunction:
    """What ``trace`` returns for a function."""

    def __init__(self, program: Program, stored: SimpleNamespace) -> None:
        self.__name__ = self.__qualname__ = self.name = program.owner
        self.__doc__ = program.function.__doc__
        self.program = program
        setattr(self, STORE, stored)
        self._function = program.function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # tensors in containers
        """Run the trace."""
        return self._function(self, *args, **kwargs)

    @property
    def code(self) -> str:
        """The function as Python."""
        return self.program.code.replace("def forward(self, ", f"def {self.name}(", 1)

    @property
    def graph(self) -> CapturedGraph:
        """The graph of the function."""
        return bound(self.program, self._at)

    @property
    def inlined_graph(self) -> CapturedGraph:
        """The same as ``graph``, which has no calls of other functions in it."""
        return self.graph

    def _at(self, path: str) -> Any:  # a tensor, or a function that draws random numbers
        return getattr(getattr(self, STORE), path.removeprefix(f"{STORE}."))

    def save(
        self, f: str | os.PathLike[str] | BinaryIO, _extra_files: Mapping[str, str | bytes] | None = None
    ) -> None:
        """Write the function to a file that ``tenon.jit.load`` reads as a module."""
        content.write(f, content.function_entry(self), _extra_files)

    def save_to_buffer(self, _extra_files: Mapping[str, str | bytes] | None = None) -> bytes:
        """Return the bytes that ``save`` writes."""
        file = io.BytesIO()
        self.save(file, _extra_files)
        return file.getvalue()

    def __reduce__(self) -> NoReturn:
        raise UnsavableError(
            f"A traced function ({self.name}) cannot be pickled. Write it by its method save(path)."
        )
