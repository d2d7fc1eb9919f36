"""PyTorch's ``torch.ops.c10d`` and ``torch.ops.c10d_functional``: the collectives by the names of operators.

PyTorch has several operators for each: DTensors call ``ops.c10d_functional.all_reduce``, ``all_reduce`` of a
user is ``ops.c10d.allreduce_``. Here all of them are the same ``CollectiveKind``, a key of the counts of
``CommDebugMode``; they cannot be called.
"""

from __future__ import annotations

#: Kinds of collectives -> PyTorch's operators.
_OPERATORS = {
    "all_gather": (
        "all_gather_into_tensor all_gather_into_tensor_coalesced all_gather_single _allgather_base_"
        " allgather_ allgather_coalesced_ allgather_into_tensor_coalesced_"
    ),
    "all_reduce": "all_reduce all_reduce_coalesced allreduce_ allreduce_coalesced_ reduce_",
    "all_to_all": "all_to_all_single alltoall_ alltoall_base_",
    "broadcast": "broadcast broadcast_",
    "gather": "gather_",
    "reduce_scatter": (
        "reduce_scatter_tensor reduce_scatter_tensor_coalesced reduce_scatter_single _reduce_scatter_base_"
        " reduce_scatter_ reduce_scatter_tensor_coalesced_"
    ),
    "scatter": "scatter_",
}


class CollectiveKind(str):
    """What ``CommDebugMode`` counts: a kind of collective, equal under all names that PyTorch has for it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<collective {self}>"


#: The kinds by PyTorch's operators.
KINDS = {name: CollectiveKind(kind) for kind, names in _OPERATORS.items() for name in names.split()}


def __getattr__(name: str) -> CollectiveKind:
    if name not in KINDS:
        raise AttributeError(f"there is no collective of the name {name!r}: {', '.join(sorted(KINDS))}")
    return KINDS[name]


def __dir__() -> list[str]:
    return sorted(KINDS)
