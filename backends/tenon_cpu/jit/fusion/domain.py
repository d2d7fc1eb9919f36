"""The iteration space of a cluster: the axes that its values have in common.

Every dimension of size over 1 of every value belongs to an axis of the *domain*; dimensions that broadcast
together, or that an op carries over, belong to the same one. A softmax over ``x[N, C]`` has the domain
``(N, C)``: ``x`` has both axes, its row maxima only the first. Clusters whose values do not fit one domain
(a matrix that is combined with its own transposed row sums) are not fused.
"""

from __future__ import annotations

import math

from tenon.extend import cluster as _described
from tenon.extend import errors

Cluster = _described.Cluster
Ref = _described.Ref
Step = _described.Step
#: A dimension of a value: the indices of both.
_Dimension = tuple[int, int]


class Domain:
    """``sizes`` of the axes; ``axes[i]`` has the axis of each dimension of value ``i``, None for size 1."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        #: A union-find forest: dimensions with one root belong to one axis.
        self._parents: dict[_Dimension, _Dimension] = {}
        n = len(cluster.inputs)
        self.shapes = [a.shape for a in cluster.inputs] + [s.aval.shape for s in cluster.steps]
        for index, step in enumerate(cluster.steps, n):
            self._step(index, step)
        self._number()

    def _root(self, dimension: _Dimension) -> _Dimension:
        while (parent := self._parents.get(dimension, dimension)) != dimension:
            dimension = parent
        return dimension

    def _join(self, value: int, dim: int, other: int, other_dim: int) -> None:
        if self.shapes[value][dim] != 1 and self.shapes[other][other_dim] != 1:
            self._parents[self._root((value, dim))] = self._root((other, other_dim))

    def _step(self, index: int, step: Step) -> None:
        """Join the dimensions of the step's result with those of its operands."""
        rank = len(self.shapes[index])
        if step.reduces:
            source = step.refs[0].index
            axes, keep = step.attr("axes"), step.attr("keepdims")
            kept = [d for d in range(len(self.shapes[source])) if keep or d not in axes]
            for own_dim, dim in enumerate(kept):
                if dim not in axes:
                    self._join(index, own_dim, source, dim)
        elif step.op == "reshape":
            source = step.refs[0].index
            old = [d for d, s in enumerate(self.shapes[source]) if s != 1]
            new = [d for d, s in enumerate(self.shapes[index]) if s != 1]
            for dim, own_dim in zip(old, new, strict=True):
                self._join(index, own_dim, source, dim)
        else:
            for ref in step.refs:
                lead = rank - len(self.shapes[ref.index])
                for dim in range(rank - lead):
                    self._join(index, dim + lead, ref.index, dim)

    def _number(self) -> None:
        """Number the axes in the order that all values have them in; NotFusableError if these differ."""
        roots: dict[_Dimension, int] = {}
        rows: list[list[_Dimension | None]] = []
        for value, shape in enumerate(self.shapes):
            row = [None if s == 1 else self._root((value, d)) for d, s in enumerate(shape)]
            own = [r for r in row if r is not None]
            if len(set(own)) != len(own):
                raise errors.NotFusableError("a value is combined with itself, transposed.")
            rows.append(row)
        for row in sorted(rows, key=lambda r: -sum(a is not None for a in r)):
            own = [r for r in row if r is not None]
            for i, root in enumerate(own):
                if root not in roots:
                    before = [roots[r] for r in own[:i] if r in roots]
                    position = max(before, default=-1) + 1
                    for other, p in roots.items():
                        if p >= position:
                            roots[other] = p + 1
                    roots[root] = position
        sizes: dict[int, int] = {}
        self.axes: list[tuple[int | None, ...]] = []
        for shape, row in zip(self.shapes, rows, strict=True):
            numbers = [None if r is None else roots[r] for r in row]
            present = [a for a in numbers if a is not None]
            if present != sorted(present):
                raise errors.NotFusableError("two values have the same axes in different orders.")
            for size, a in zip(shape, numbers, strict=True):
                if a is not None:
                    sizes[a] = size
            self.axes.append(tuple(numbers))
        self.sizes = [sizes[i] for i in range(len(sizes))]

    def axes_of(self, ref: Ref) -> frozenset[int]:
        """The axes that a value has."""
        return frozenset(a for a in self.axes[ref.index] if a is not None)

    def reduced(self, step: Step) -> frozenset[int]:
        """The axes that a reduction removes."""
        own = self.axes[step.refs[0].index]
        return frozenset(a for d in step.attr("axes") if (a := own[d]) is not None)

    def strides(self, value: int, strides: tuple[int, ...]) -> tuple[int, ...]:
        """An array's strides per axis of the domain: 0 for axes that it does not have."""
        per_axis = [0] * len(self.sizes)
        for a, stride in zip(self.axes[value], strides, strict=True):
            if a is not None:
                per_axis[a] = stride
        return tuple(per_axis)

    def groups(
        self, layouts: list[tuple[int, ...]], order: list[int], kept: list[frozenset[int]]
    ) -> list[list[int]]:
        """Split the axes, in ``order``, into runs that one loop can walk: every array has one stride over a
        run, and every set in ``kept`` has all of its axes or none."""
        runs: list[list[int]] = []
        for a in order:
            if runs:
                last = runs[-1][-1]
                even = all(layout[last] == layout[a] * self.sizes[a] for layout in layouts)
                if even and all((last in s) == (a in s) for s in kept):
                    runs[-1].append(a)
                    continue
            runs.append([a])
        return runs


class Loops:
    """The loops to generate: a domain's axes, ordered and merged for arrays of known strides.

    ``layouts`` has the strides, in elements, of the kernel's arguments: the inputs, then the outputs.
    """

    def __init__(self, domain: Domain, layouts: tuple[tuple[int, ...], ...], ordered: bool = False) -> None:
        cluster = domain.cluster
        n = len(cluster.inputs)
        values = [*range(n), *(r.index for r in cluster.outputs)]
        per_axis = [domain.strides(v, s) for v, s in zip(values, layouts, strict=True)]
        kept = [domain.reduced(s) for s in cluster.steps if s.reduces]
        kept += [domain.axes_of(Ref(i)) for i in range(n + len(cluster.steps))]
        order = list(range(len(domain.sizes)))
        if not ordered:
            fullest = max(range(len(values)), key=lambda p: (len(domain.axes_of(Ref(values[p]))), p >= n))
            widest = per_axis[fullest]
            order.sort(key=lambda a: -abs(widest[a]) if widest[a] else -(1 << 60) + a)
        groups = domain.groups(per_axis, order, kept)
        #: The length of an axis that was cut into rows, of which the last may be shorter; 0 if none was cut.
        self.tail = 0
        self.sizes = [math.prod(domain.sizes[a] for a in g) for g in groups]
        self.strides = [[s[g[-1]] for g in groups] for s in per_axis]
        loop = {a: i for i, g in enumerate(groups) for a in g}
        self.has = [frozenset(loop[a] for a in domain.axes_of(Ref(i))) for i in range(n + len(cluster.steps))]
        self.reduced = {
            i: frozenset(loop[a] for a in domain.reduced(s))
            for i, s in enumerate(cluster.steps, n)
            if s.reduces
        }
