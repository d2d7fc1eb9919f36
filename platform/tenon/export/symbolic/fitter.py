"""``Fitter``: writes the integers of nodes, observed in captures at several sizes, as expressions of symbols.

Captures at few sizes leave many expressions possible. Shape rules need no capture: they are run at further
sizes, the probes, from which the shapes of results follow exactly once the arguments are known.
"""

from __future__ import annotations

import itertools
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tenon.engine.aval import Aval
from tenon.errors import GraphError
from tenon.export.places import Path, integers
from tenon.export.sizes import Expression, Size, Sizes, at, symbol
from tenon.export.symbolic.forms import Observed, argument_forms, forms
from tenon.export.symbolic.inferred import inferred_at
from tenon.export.symbolic.size_guards import Decisions
from tenon.graph.graph import Node, NodeArgument, Ref

if TYPE_CHECKING:
    from tenon.export.captured import Symbol

#: How far probes are from the first sample, in one size each.
_STEPS = (1, 2, 3, 4, 6, 9, 13, 19, 28, 41, 60, 88, 129, 190)
#: The most expressions of one integer that are compared.
_COMPARED = 6
#: The largest number in a node that sizes are divided by.
_LARGEST_DIVISOR = 64
#: The state of a ``Fitter`` before a call, and the call -> its expressions, and the state after it. Layers of
#: one form, and captures that are compared again, need one search.
_SEARCHED: dict[tuple[str, ...], tuple[dict[Path, Expression], tuple[Any, ...]]] = {}  # of several types
_MOST_SEARCHED = 4096


class NoExpressionError(Exception):
    """No expression gives the integers at ``path``, which are ``values`` at the samples."""

    def __init__(self, path: Path, values: tuple[int, ...]) -> None:
        super().__init__(path, values)
        self.path, self.values = path, values


class Fitter:
    """Finds the expressions of one node after the other, from those of the nodes before."""

    def __init__(
        self,
        samples: Sequence[Sizes],
        symbols: Mapping[str, Symbol],
        excluded: Sequence[Sizes] = (),
        decisions: Decisions | None = None,
    ) -> None:
        self.samples = list(samples)
        #: Further sizes, for which the nodes so far hold; none of ``excluded``, which the function refuses.
        self.probes = [each for each in probes(self.samples, symbols) if each not in excluded]
        #: Sizes at which several expressions that fit an argument differ: a capture there decides.
        self.undecided: list[Sizes] = []
        self.symbolic: dict[Node, dict[Path, Expression]] = {}
        self._known: dict[Expression, None] = {symbol(name): None for name in samples[0]}
        #: Calls that are alike but for the values they read -> the expressions that were found.
        self._found: dict[str, dict[Path, Expression]] = {}
        #: Numbers of probes at which the present node has other shapes than its expressions say.
        self._outside: set[int] = set()
        #: What Python computed from sizes, beside decisions.
        self._decisions = Decisions() if decisions is None else decisions

    def add(self, nodes: Sequence[Node]) -> None:
        """Find the expressions in ``nodes``, the same node at each of the samples."""
        own = [dict(integers(node)) for node in nodes]
        observed = {path: tuple(each[path] for each in own) for path in own[0]}
        node = nodes[0]
        shapes = [self._shape(ref) for ref in node.refs]
        if all(len(set(values)) == 1 for values in observed.values()) and not any(
            isinstance(size, Expression) for shape in shapes for size in shape
        ):
            return
        computed = self._decisions.computed_in(node, self.symbolic)
        form = node.kind, node.name, self._form(node.args), self._form(node.attrs), observed
        key = repr((*form, computed) if computed else form)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._searched(key, node, shapes, observed, computed)
        if found:
            self.symbolic[node] = dict(found)

    def _searched(
        self,
        key: str,
        node: Node,
        shapes: Sequence[Sequence[Size]],
        observed: Mapping[Path, tuple[int, ...]],
        computed: Mapping[Path, Size],
    ) -> dict[Path, Expression]:
        """Return the expressions of a call that is like no earlier one of this capture."""
        before = (key, *(repr(part) for part in (self.samples, self.probes, self.undecided, [*self._known])))
        known = _SEARCHED.get(before)
        if known is not None:
            self.probes, self.undecided, self._known = (part.copy() for part in known[1])
            return known[0]
        found = self._of_node(node, shapes, observed, computed)
        if " at 0x" not in key and "..." not in key:  # objects and large arrays whose text is not all of them
            if len(_SEARCHED) >= _MOST_SEARCHED:
                _SEARCHED.clear()
            _SEARCHED[before] = (
                found, (self.probes.copy(), self.undecided.copy(), self._known.copy()),
            )  # fmt: skip
        return found

    def _of_node(
        self,
        node: Node,
        shapes: Sequence[Sequence[Size]],
        observed: Mapping[Path, tuple[int, ...]],
        computed: Mapping[Path, Size],
    ) -> dict[Path, Expression]:
        divisors = _divisors(observed)
        choices: dict[Path, list[Expression]] = {}
        for path, values in observed.items():
            if path[0] != "shape" and len(set(values)) > 1:
                seen = Observed(values, self.samples, self._known)
                known = computed.get(path)
                if isinstance(known, Expression) and seen.fits(known):
                    choices[path] = [known]
                    self._known[known] = None
                    continue
                candidates = _expressions(seen, argument_forms(seen, shapes, divisors))
                choices[path] = list(itertools.islice(candidates, _COMPARED))
                if not choices[path]:
                    raise NoExpressionError(path, values)
        found = {path: each[0] for path, each in choices.items()}
        for path, each in choices.items():
            if len(each) > 1:  # the one with which the rule holds for the most sizes
                held = [self._held(node, {**found, path: size}) for size in each]
                fitting = [size for size, count in zip(each, held, strict=True) if count == max(held)]
                found[path] = fitting[0]
                self._decide_later(fitting)
        beyond = self._beyond(node, found)
        self._outside = set()
        for path, values in observed.items():
            if path[0] == "shape":
                drawn = found.get(("attrs", "make", *path[::2])) if path[1] == 0 else None
                size = drawn or self._of_shape(path, values, beyond, shapes, divisors)
                if isinstance(size, Expression):
                    found[path] = size
                    self._known[size] = None
        self.probes = [probe for number, probe in enumerate(self.probes) if number not in self._outside]
        return found

    def _of_shape(
        self,
        path: Path,
        values: tuple[int, ...],
        beyond: Mapping[int, tuple[Aval, ...]],
        shapes: Sequence[Sequence[Size]],
        divisors: Sequence[int],
    ) -> Size:
        """Return the size at ``path``, by the shapes ``beyond`` the samples too: those at the probes."""
        _, output, axis = path
        further = {  # a rule tells nothing of residuals, the outputs behind its own
            number: avals[output].shape[axis] for number, avals in beyond.items() if output < len(avals)
        }
        everywhere = values + tuple(further.values())
        if len(set(everywhere)) == 1:
            return values[0]
        samples = [*self.samples, *(self.probes[number] for number in further)]
        exact = Observed(everywhere, samples, self._known)
        for size in _expressions(exact, forms(exact, shapes, divisors)):
            return size
        if len(set(values)) == 1:
            size_here: Size = values[0]
        else:
            few = Observed(values, self.samples, self._known)
            found = next(_expressions(few, forms(few, shapes, divisors)), None)
            if found is None:
                raise NoExpressionError(path, values)
            size_here = found
        wrong = {n for n, value in further.items() if at(size_here, self.probes[n]) != value}
        self._outside |= wrong
        return size_here

    def _decide_later(self, fitting: Sequence[Expression]) -> None:
        """Add to ``undecided`` the first probe at which the expressions differ, unless it has one."""
        apart = (
            probe for probe in [*self.undecided, *self.probes] if len({at(s, probe) for s in fitting}) > 1
        )
        probe = next(apart, None)
        if probe is not None and probe not in self.undecided:
            self.undecided.append(probe)

    def _held(self, node: Node, found: Mapping[Path, Expression]) -> int:
        """Return for how many probes the shape rule of ``node`` holds with the expressions ``found``."""
        known = ChainMap({node: dict(found)}, self.symbolic)
        return sum(_tried(known, node, probe) is not None for probe in self.probes)

    def _beyond(self, node: Node, found: Mapping[Path, Expression]) -> dict[int, tuple[Aval, ...]]:
        """Return the shapes at the probes, by number; drop those at which the rule does not hold."""
        known = ChainMap({node: dict(found)}, self.symbolic)
        shapes = [_tried(known, node, probe) for probe in self.probes]
        if not any(shapes):  # the op has no rule, or an expression is wrong
            return {}
        self.probes = [probe for probe, each in zip(self.probes, shapes, strict=True) if each]
        return dict(enumerate(each for each in shapes if each))

    def _shape(self, ref: Ref) -> tuple[Size, ...]:
        if ref.scalar:
            return ()
        own = self.symbolic.get(ref.node, {})
        return tuple(own.get(("shape", ref.index, axis), n) for axis, n in enumerate(ref.aval.shape))

    def _form(self, value: NodeArgument) -> object:
        """Return arguments with the shapes of what they read in its place."""
        if value.__class__ is Ref:
            return (self._shape(value), None if value.scalar else value.aval.dtype)
        if isinstance(value, tuple | list):
            return [self._form(each) for each in value]
        if isinstance(value, dict):
            return {key: self._form(each) for key, each in value.items()}
        return value


def _expressions(observed: Observed, found: Iterable[Size]) -> Iterator[Expression]:
    """Yield those of ``found`` that are expressions and give the observed values, without repetitions."""
    seen: set[Expression] = set()
    for size in found:
        if isinstance(size, Expression) and size not in seen and observed.fits(size):
            seen.add(size)
            yield size


def _tried(
    symbolic: Mapping[Node, Mapping[Path, Expression]], node: Node, probe: Sizes
) -> tuple[Aval, ...] | None:
    """Return the avals of ``node`` at the sizes ``probe``; () without a rule, None if the rule fails."""
    try:
        return inferred_at(symbolic, node, probe)
    except GraphError:
        return None


def _divisors(observed: Mapping[Path, tuple[int, ...]]) -> list[int]:
    """Return the numbers in arguments and attrs by which the node may divide sizes."""
    fixed = {values[0] for path, values in observed.items() if path[0] != "shape" and len(set(values)) == 1}
    return sorted(number for number in fixed if 1 < number <= _LARGEST_DIVISOR)


def probes(samples: Sequence[Sizes], symbols: Mapping[str, Symbol]) -> Iterator[Sizes]:
    """Yield sizes in the ranges of ``symbols``: the first sample with one size changed, and with all changed.

    Small steps tell how quotients round; multiples are for functions that need them.
    """
    base = samples[0]
    further = {}
    for name, size in base.items():
        own = [size + step for step in _STEPS] + [size * n for n in range(2, 8)]
        least, most = max(symbols[name].least, 2), symbols[name].most
        if most is not None:
            own = [*range(max(least, size - _STEPS[-1]), size), *own]
        further[name] = [each for each in own if least <= each and (most is None or each <= most)]
    for name, own in further.items():
        for size in own:
            yield {**base, name: size}
    if len(base) > 1 and all(further.values()):
        for number in range(len(_STEPS) + 6):
            yield {
                name: own[(number * 5 + 3 * i) % len(own)] for i, (name, own) in enumerate(further.items())
            }
