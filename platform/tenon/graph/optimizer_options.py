"""The part of a recorder for optimizers: options and step counts as Scalars, and guards on both."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tenon.engine.value import Value
from tenon.graph.graph import Graph, Node
from tenon.graph.guards import STEP_HOOKS, Guard, Names, literal
from tenon.graph.recorded_hooks import keys_of
from tenon.graph.scalars import QUESTIONS, Reading, Scalar, evaluate, expression_of, question_text
from tenon.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tenon.optim.optimizer import Optimizer
    from tenon.optim.types import ParamGroup, State


class OptimizerOptions:
    """Records the options and step counts that optimizers read."""

    #: Whether the function is recorded again once a guard fails; a captured graph has to serve every run.
    records_again = True
    graph: Graph
    guards: list[Guard]
    optimizers: dict[int, Optimizer]
    #: By key, the Scalars of options and step counts; None for a key whose guard exists.
    _scalars: dict[Hashable, Scalar | None]
    #: By key, the Scalar of a step count, and the tensors that hold it.
    _counts: dict[Hashable, tuple[Scalar, list[Tensor]]]
    _rescheduled: set[int]

    def _listens(self) -> bool:
        raise NotImplementedError

    def unsupported(self, what: str) -> None:
        """Refuse to record an effect that no replay could repeat."""
        raise NotImplementedError

    # --- optimizers ---

    def stepping(self, optimizer: Optimizer, own_rule: bool) -> None:
        """Callback: a step begins. Unless it is ``Optimizer.step`` (``own_rule``), guard all options."""
        if not self._listens():
            return
        self._register(optimizer)
        if not own_rule:
            for i, group in enumerate(optimizer.param_groups):
                options = {name: value for name, value in group.items() if name != "params"}

                def same(group: ParamGroup = group, options: ParamGroup = options) -> bool:
                    return all(group.get(name) is v or group.get(name) == v for name, v in options.items())

                what = f"the options of group {i} of {type(optimizer).__name__}"
                self._add_guard((id(optimizer), i, "options"), Guard(what, same))

    def _register(self, optimizer: Optimizer) -> None:
        if id(optimizer) not in self.optimizers:
            self.optimizers[id(optimizer)] = optimizer
            self.guards.append(_groups_guard(optimizer))

    def hyperparameters(self, optimizer: Optimizer, group: ParamGroup) -> SimpleNamespace:
        """Return the group's options as attributes: floats as Scalars; of the others the values are
        guarded."""
        if not self._listens():
            return SimpleNamespace(**group)
        if id(optimizer) in self._rescheduled:
            self.unsupported("a step of an optimizer after a step of its scheduler")
        self._register(optimizer)
        h = SimpleNamespace()
        for name, value in group.items():
            if name == "params":
                continue
            setattr(h, name, self._option(group, name, value))
        return h

    # An option is of any type: the optimizer's constructor states which.
    def _option(self, group: ParamGroup, name: str, value: Any) -> Any:
        if value.__class__ is float:
            key = (id(group), name)
            read = Reading(key, lambda: group[name], lambda names: f"{names(group)}[{name!r}]")
            return self._scalar(key, read, value, name)
        if value.__class__ is tuple and value and all(v.__class__ is float for v in value):
            return tuple(
                self._scalar((id(group), name, i), _element(group, name, i), v, f"{name}{i}")
                for i, v in enumerate(value)
            )
        if isinstance(value, Value):
            self.guard_identity(f"the tensor {name!r} of a parameter group", lambda: group.get(name), value)
            return value

        def source(names: Names) -> str:
            operator = "is" if value is None or value is True or value is False else "=="
            return f"{names(group)}.get({name!r}) {operator} {literal(value, names)}"

        guard = Guard(f"{name!r} of a parameter group", lambda: bool(group.get(name) == value), source)
        self._add_guard((id(group), name, "value"), guard)
        return value

    def step_count(self, optimizer: Optimizer, state: State, steps: int) -> Scalar | int:
        """Return the number of this step of a parameter; equal counts share a Scalar."""
        if not self._listens():
            return steps
        tensor: Tensor = state["step"]
        done = sum(any(t is tensor for t in tensors) for _, tensors in self._counts.values())
        key = (id(optimizer), steps, done)
        count = self._counts.get(key)
        if count is None:
            read = Reading(
                (id(optimizer), done),
                lambda: float(tensor.raw) + 1 + done,
                lambda names: f"{names(tensor)}.raw.item() + {1.0 + done}",
            )
            scalar = self._scalar(key, read, float(steps), "step")
            count = self._counts[key] = (scalar, [])
            self.guards.append(_counts_guard(count[1]))
        if all(t is not tensor for t in count[1]):
            count[1].append(tensor)
        return count[0]

    def counters(self) -> list[list[Tensor]]:
        """Return groups of equal step counts, which every run increments by one."""
        return [tensors for _, tensors in self._counts.values()]

    def _scalar(self, key: Hashable, get: Reading, value: float, label: str) -> Scalar:
        scalar = self._scalars.get(key)
        if scalar is None:
            node = self.graph.scalar("input", (), get, label)
            scalar = self._scalars[key] = Scalar(self, node, value)
        return scalar

    # --- guards ---

    def _add_guard(self, key: Hashable, guard: Guard) -> None:
        """Add ``guard`` unless there is one of this key."""
        if key not in self._scalars:
            self._scalars[key] = None
            self.guards.append(guard)

    def guard_identity(self, what: str, get: Callable[[], object], value: object) -> None:
        """Guard that ``get()`` is the object ``value``."""
        self._add_guard((id(value), what), Guard(what, lambda: get() is value))

    def guard_scalar(self, scalar: Scalar, question: str, other: object, answer: float) -> None:
        """Guard that a question about a scalar (a key of ``QUESTIONS``) has the same answer."""
        node, right = scalar.node, other.node if isinstance(other, Scalar) else other
        ask = QUESTIONS[question]

        def same() -> bool:
            value = evaluate(node, _current(node))
            against = evaluate(right, _current(right)) if isinstance(right, Node) else right
            return bool(ask(value, against) == answer)

        def source(names: Names) -> str:
            against = expression_of(right, names) if isinstance(right, Node) else names(right)
            return f"({question_text(question, expression_of(node, names), against)}) == {names(answer)}"

        what = f"{node.label or 'a number'} ({question})"
        self._add_guard((id(node), question, repr(other)), Guard(what, same, source))


def _groups_guard(optimizer: Optimizer) -> Guard:
    groups = [(group, group["params"], list(group["params"])) for group in optimizer.param_groups]

    def same() -> bool:
        now = optimizer.param_groups
        if len(now) != len(groups):
            return False
        for group, (then, params, members) in zip(now, groups, strict=True):
            if group is not then or group["params"] is not params or len(params) != len(members):
                return False
            if not all(map(operator.is_, params, members)):
                return False
        return True

    def source(names: Names) -> str:
        now, each = f"{names(optimizer)}.param_groups", names(operator.is_)
        checks = [f"len({now}) == {len(groups)}"]
        for i, (group, params, members) in enumerate(groups):
            checks.append(f"{now}[{i}] is {names(group)}")
            checks.append(f"(m := {names(group)}['params']) is {names(params)} and len(m) == {len(members)}")
            checks.append(f"all(map({each}, m, {names(members)}))")
        return " and ".join(checks)

    return Guard("the parameter groups of an optimizer", same, source)


def state_guard(optimizer: Optimizer) -> Guard:
    """Return the guard that state tensors and hooks of ``optimizer``, and the hooks of all, are the same."""
    state = optimizer.state
    entries = list(state.values())
    hooks = [(name, list(getattr(optimizer, name))) for name in STEP_HOOKS]
    of_all = [(each, keys_of(each)) for each in optimizer._hooks_of_all]
    tensors = [
        (each, name, value) for each in entries for name, value in each.items() if isinstance(value, Value)
    ]

    def same() -> bool:
        if optimizer.state is not state or len(state) != len(entries):
            return False
        if any(list(getattr(optimizer, name)) != then for name, then in hooks):
            return False
        if any(keys_of(each) != then for each, then in of_all):
            return False
        return all(map(operator.is_, state.values(), entries)) and all(e.get(n) is v for e, n, v in tensors)

    def source(names: Names) -> str:
        own = names(state)
        checks = [f"{names(optimizer)}.state is {own} and len({own}) == {len(entries)}"]
        checks.append(f"all(map({names(operator.is_)}, {own}.values(), {names(entries)}))")
        checks += [f"[*{names(optimizer)}.{name}] == {then!r}" for name, then in hooks]
        for each, then in of_all:  # most often empty, and they were
            now = f"{names(keys_of)}({names(each)})"
            checks.append(f"{now} == {then!r}" if then else f"not ({names(each)} and {now})")
        checks += [f"{names(e)}.get({n!r}) is {names(v)}" for e, n, v in tensors]
        return " and ".join(checks)

    return Guard("the state or the hooks of an optimizer", same, source)


def _counts_guard(tensors: list[Tensor]) -> Guard:
    """Return the guard that step counts that were equal at the recording are equal."""

    def source(names: Names) -> str:
        if len(tensors) < 2:
            return "True"
        return f"len({{{', '.join(f'{names(t)}.raw.item()' for t in tensors)}}}) == 1"

    return Guard(
        "which parameters an optimizer updates", lambda: len({t.raw.item() for t in tensors}) < 2, source
    )


def _element(group: ParamGroup, name: str, index: int) -> Reading:
    """Return the reading of one number of an option that is a tuple."""

    def source(names: Names) -> str:
        return f"{names(group)}[{name!r}][{index}]"

    return Reading((id(group), name, index), lambda: group[name][index], source)


def _current(node: Node) -> dict[Node, float]:
    """Return the present values of the scalar inputs that ``node`` depends on."""
    if node.function == "input":
        return {node: node.value()}
    values: dict[Node, float] = {}
    for ref in node.refs:
        values |= _current(ref.node)
    return values
