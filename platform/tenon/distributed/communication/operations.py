"""Collectives as ops: recorded by ``tenon.compile``, seen by profilers, with gradients.

``group`` is a communicator. Arrays of other devices pass through the host. All ranks run the same ops in the
same order, in backward too: the gradient of a collective is a collective. Ranks compare ``name`` and
``detail``.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tenon.distributed.communication.call_sites import at_run
from tenon.distributed.communication.calls import Implied
from tenon.engine.aval import Aval
from tenon.engine.op import Kind, Primitive
from tenon.engine.types import Array, ArrayNamespace, Operand, OpNamespace
from tenon.errors import UnsupportedError

if TYPE_CHECKING:
    from tenon.distributed.communication.communicator import Communicator

#: What the data is, as ranks compare it.
Name: TypeAlias = str | None


class Collective(Primitive):
    """Base class of collectives as ops, from ``x`` of all ranks to a new array."""

    kind = Kind.COLLECTIVE
    inputs = ("x",)


class AllReduce(Collective):
    """The sum of ``x`` over the ranks, or another reduction ``op``; the same on all ranks."""

    saves = ("x", "out")

    def infer(self, x: Aval, *, op: str, group: Communicator, name: Name = None) -> Aval:
        """Shape and dtype of ``x``."""
        return Aval(tuple(x.shape), x.dtype)

    def forward(
        self, xp: ArrayNamespace, x: Array, *, op: str, group: Communicator, name: Name = None
    ) -> Array:
        """Perform the collective on host arrays."""
        return xp.asarray(group.all_reduce(_host(x), op, name=at_run(name)).wait())

    def vjp_x(
        self,
        f: OpNamespace,
        g: Operand,
        out: Operand,
        x: Operand,
        *,
        op: str,
        group: Communicator,
        name: Name = None,
    ) -> Operand:
        """Reduce ``g``, as every rank's result depends on every rank's ``x``; tied extrema share it."""
        if op == "prod":
            raise UnsupportedError(
                "all_reduce of products over ranks has no gradient. Sum logarithms instead."
            )
        if op in ("sum", "mean"):
            return f.all_reduce(g, op=op, group=group, name=_back(name))
        hit = f.cast(f.eq(x, out), dtype=g.dtype)
        ties = f.all_reduce(hit, op="sum", group=group, name=_back(name))
        return f.div(f.mul(f.all_reduce(g, op="sum", group=group, name=_back(name)), hit), ties)


class AllGather(Collective):
    """``x`` of all ranks as rows of one array: ``[size, *x.shape]``."""

    def infer(self, x: Aval, *, group: Communicator, name: Name = None, detail: str = "") -> Aval:
        """A leading axis of one row per rank."""
        return Aval((group.size, *x.shape), x.dtype)

    def forward(
        self, xp: ArrayNamespace, x: Array, *, group: Communicator, name: Name = None, detail: str = ""
    ) -> Array:
        """Perform the collective on host arrays."""
        return xp.asarray(group.all_gather(_host(x), name=at_run(name), detail=detail).wait())

    def vjp_x(
        self,
        f: OpNamespace,
        g: Operand,
        out: Operand,
        x: Operand,
        *,
        group: Communicator,
        name: Name = None,
        detail: str = "",
    ) -> Operand:
        """Sum the cotangents over the ranks, all of which have a copy of ``x``."""
        return f.reduce_scatter(g, op="sum", group=group, name=_back(name))


class ReduceScatter(Collective):
    """Row r of the sum of ``x[size, ...]`` over the ranks, on rank r."""

    def infer(self, x: Aval, *, op: str, group: Communicator, name: Name = None) -> Aval:
        """The shape of one row."""
        return Aval(tuple(x.shape[1:]), x.dtype)

    def forward(
        self, xp: ArrayNamespace, x: Array, *, op: str, group: Communicator, name: Name = None
    ) -> Array:
        """Perform the collective on host arrays."""
        return xp.asarray(group.reduce_scatter(_host(x), op, name=at_run(name)).wait())

    def vjp_x(
        self,
        f: OpNamespace,
        g: Operand,
        out: Operand,
        x: Operand,
        *,
        op: str,
        group: Communicator,
        name: Name = None,
    ) -> Operand:
        """Gather the cotangents: row r of ``x`` goes into the result of rank r."""
        if op not in ("sum", "mean"):
            raise UnsupportedError(f"reduce_scatter with op={op!r} has no gradient. Use a sum or a mean.")
        back = f.all_gather(g, group=group, name=_back(name))
        return back if op == "sum" else f.mul(back, 1.0 / group.size)


class AllToAll(Collective):
    """Row r of ``x[size, ...]`` goes to rank r; row r of the result came from rank r."""

    def infer(self, x: Aval, *, group: Communicator, name: Name = None, detail: str = "") -> Aval:
        """Shape and dtype of ``x``."""
        return Aval(tuple(x.shape), x.dtype)

    def forward(
        self, xp: ArrayNamespace, x: Array, *, group: Communicator, name: Name = None, detail: str = ""
    ) -> Array:
        """Perform the collective on host arrays."""
        return xp.asarray(group.all_to_all(_host(x), name=at_run(name), detail=detail).wait())

    def vjp_x(
        self,
        f: OpNamespace,
        g: Operand,
        out: Operand,
        x: Operand,
        *,
        group: Communicator,
        name: Name = None,
        detail: str = "",
    ) -> Operand:
        """Exchange the rows back."""
        return f.all_to_all(g, group=group, name=_back(name))


class BroadcastFrom(Collective):
    """``x`` of rank ``root``, on every rank."""

    def infer(self, x: Aval, *, root: int, group: Communicator, name: Name = None) -> Aval:
        """Shape and dtype of ``x``."""
        return Aval(tuple(x.shape), x.dtype)

    def forward(
        self, xp: ArrayNamespace, x: Array, *, root: int, group: Communicator, name: Name = None
    ) -> Array:
        """Perform the collective on host arrays."""
        return xp.asarray(group.broadcast(_host(x), root, name=at_run(name)).wait())

    def vjp_x(
        self,
        f: OpNamespace,
        g: Operand,
        out: Operand,
        x: Operand,
        *,
        root: int,
        group: Communicator,
        name: Name = None,
    ) -> Operand:
        """Sum the cotangents of all copies on the root; zero elsewhere, as other inputs are ignored."""
        return f.reduce_to(g, op="sum", root=root, group=group, name=_back(name))


class ReduceTo(Collective):
    """The sum of ``x`` over the ranks, or their mean, on rank ``root``; zeros elsewhere."""

    def infer(self, x: Aval, *, op: str, root: int, group: Communicator, name: Name = None) -> Aval:
        """Shape and dtype of ``x``."""
        return Aval(tuple(x.shape), x.dtype)

    def forward(
        self,
        xp: ArrayNamespace,
        x: Array,
        *,
        op: str,
        root: int,
        group: Communicator,
        name: Name = None,
    ) -> Array:
        """Perform the collective on host arrays."""
        total = group.reduce(_host(x), root, op, name=at_run(name)).wait()
        return xp.asarray(total) if group.rank == root else xp.zeros(x.shape, x.dtype)

    def vjp_x(
        self,
        f: OpNamespace,
        g: Operand,
        out: Operand,
        x: Operand,
        *,
        op: str,
        root: int,
        group: Communicator,
        name: Name = None,
    ) -> Operand:
        """Broadcast the root's cotangent: only the root's result depends on the inputs."""
        if op not in ("sum", "mean"):
            raise UnsupportedError(f"reduce with op={op!r} has no gradient. Use a sum or a mean.")
        back = f.broadcast_from(g, root=root, group=group, name=_back(name))
        return back if op == "sum" else f.mul(back, 1.0 / group.size)


@functools.lru_cache(maxsize=4096, typed=True)
def _back(name: Name) -> Name:
    """The name of the collective in backward of a collective of this name."""
    if isinstance(name, Implied):
        return name.with_prefix("backward through ")
    return None if name is None else f"{name}, backward"


def _host(x: Array) -> np.ndarray:
    """``x`` as a NumPy array; a GPU's is copied."""
    return x if isinstance(x, np.ndarray) else x.get()


all_reduce, all_gather, reduce_scatter = AllReduce(), AllGather(), ReduceScatter()
all_to_all, broadcast_from, reduce_to = AllToAll(), BroadcastFrom(), ReduceTo()
