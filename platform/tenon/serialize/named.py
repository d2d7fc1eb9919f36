"""``NamedBytes``: the content of a file in memory, with the file's name for error messages."""

from __future__ import annotations

import io


class NamedBytes(io.BytesIO):
    """Bytes open for reading; ``load`` calls them ``name`` in its errors."""

    def __init__(self, content: bytes | memoryview, name: str) -> None:
        super().__init__(content)
        self.name = name
