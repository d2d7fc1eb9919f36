"""``TensorFile``: a dict of tensors in a safetensors file of tenon's, read one by one."""

from __future__ import annotations

from typing import BinaryIO

from tenon.errors import CheckpointError, TenonError
from tenon.serialize.limits import cut, short
from tenon.serialize.placement import Placement
from tenon.serialize.tensor_arrays import Arrays
from tenon.serialize.tensors import Row, tensor_of
from tenon.tensors.tensor import Tensor


class TensorFile:
    """The tensors in ``file``, which stays open; ``source`` names it in errors.

    ``digest`` is the SHA-256 of the file's manifest, which has those of the arrays. Raises CheckpointError if
    the file is damaged, or was not written by tenon.
    """

    def __init__(self, file: BinaryIO, source: str) -> None:
        self.source = source
        self._arrays = Arrays(file, Placement("cpu", source))
        document = self._arrays.document
        if document is None or self._arrays.digest is None:
            raise CheckpointError(
                f"cannot load {source}: it has no checksums, so tenon did not write it as part of a"
                " checkpoint. Put the file back that was saved under this name."
            )
        self.digest: str = self._arrays.digest
        self._checked: set[str] = set()
        try:
            items = document["structure"]["dict"].items()
            self._rows: dict[str, Row] = {name: document["tensors"][node["tensor"]] for name, node in items}
        except (AttributeError, LookupError, TypeError) as error:
            raise CheckpointError(
                f"cannot load {source}: it is not a dict of tensors ({cut(error)})."
            ) from error

    def tensor(self, name: str) -> Tensor:
        """Read the tensor called ``name``; its checksum is compared."""
        try:
            tensor = tensor_of(self._arrays, self._row(name))
        except CheckpointError:
            raise
        except (ArithmeticError, LookupError, TenonError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"cannot load {self.source}: tensor {short(name)} is malformed ({cut(repr(error))})."
            ) from error
        self._arrays.forget()
        return tensor

    def check(self, name: str) -> None:
        """Read the array of a tensor, once, and compare its checksum."""
        array = self._row(name)["array"]
        if array is None or array not in self._arrays.entries:
            raise CheckpointError(f"cannot load {self.source}: it has no data of tensor {short(name)}.")
        if array not in self._checked:
            self._arrays.check(array)
            self._checked.add(array)

    def _row(self, name: str) -> Row:
        row = self._rows.get(name)
        if row is None:
            raise CheckpointError(f"cannot load {self.source}: it has no tensor {short(name)}.")
        return row
