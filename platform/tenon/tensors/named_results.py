"""Named tuples that functions with several results return, as ``torch.return_types``."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenon.tensors.tensor import Tensor


class NamedResult(tuple[Any, ...]):  # mostly of tensors; a number or a nested tuple in some results
    """A tuple whose items also have names; prints as PyTorch's return types do."""

    __slots__ = ()
    _fields: tuple[str, ...] = ()
    _op = ""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Tensor: ...  # the item of that name

    @classmethod
    def _make(cls, items: Iterable[object]) -> NamedResult:
        """Return the items as one of these tuples, as ``collections.namedtuple`` does."""
        return cls(items)

    def __repr__(self) -> str:
        body = ",\n".join(f"{n}={v!r}" for n, v in zip(self._fields, self, strict=True))
        return f"torch.return_types.{self._op}(\n{body})"

    def __reduce__(self) -> tuple[type[tuple[object, ...]], tuple[tuple[object, ...]]]:
        return (tuple, (tuple(self),))


_TYPES: dict[tuple[str, ...], type[NamedResult]] = {}


def named_result(op: str, **items: object) -> NamedResult:
    """Return the results of the function ``op`` as a named tuple."""
    key = (op, *items)
    cls = _TYPES.get(key)
    if cls is None:
        body: dict[str, object] = {"_fields": tuple(items), "_op": op, "__slots__": ()}
        for position, name in enumerate(items):
            body[name] = property(itemgetter(position))
        cls = _TYPES[key] = type(op, (NamedResult,), body)
    return cls(items.values())
