"""The part of a recorder that optimizers talk to: options and step counts as Scalars, and guards."""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tenon.engine.value import Value
from tenon.graph.graph import Graph, Node
from tenon.graph.guards import STEP_HOOKS, Guard, Names, literal
from tenon.graph.scalars import QUESTIONS, Reading, Scalar, evaluate, expression_of, question_text


class OptimizerOptions:
    """Numbers and conditions of a recording that come from outside its tensors."""

    graph: Graph
    guards: list[Guard]
    optimizers: dict[int, Any]
    _scalars: dict[Any, Any]
    _counts: dict[Any, tuple[Scalar, list[Any]]]
    _rescheduled: set[int]

    def _listens(self) -> bool:
        raise NotImplementedError

    def unsupported(self, what: str) -> None:
        """The function does something that no replay could repeat."""
        raise NotImplementedError

    # --- optimizers ---

    def stepping(self, optimizer: Any, own_rule: bool) -> None:
        """``optimizer`` begins a step; without ``own_rule`` it reads its options in ways unknown here."""
        if not self._listens():
            return
        self._know(optimizer)
        if not own_rule:
            for i, group in enumerate(optimizer.param_groups):
                options = {name: value for name, value in group.items() if name != "params"}

                def same(group: dict[str, Any] = group, options: dict[str, Any] = options) -> bool:
                    return all(group.get(name) is v or group.get(name) == v for name, v in options.items())

                what = f"the options of group {i} of {type(optimizer).__name__}"
                self._once((id(optimizer), i, "options"), Guard(what, same))

    def _know(self, optimizer: Any) -> None:
        if id(optimizer) not in self.optimizers:
            self.optimizers[id(optimizer)] = optimizer
            self.guards.append(_groups_guard(optimizer))

    def hyperparameters(self, optimizer: Any, group: dict[str, Any]) -> SimpleNamespace:
        """The group's options as attributes: floats as Scalars, everything else guarded by its value."""
        if not self._listens():
            return SimpleNamespace(**group)
        if id(optimizer) in self._rescheduled:
            self.unsupported("another step of an optimizer after that of its scheduler")
        self._know(optimizer)
        h = SimpleNamespace()
        for name, value in group.items():
            if name == "params":
                continue
            setattr(h, name, self._option(group, name, value))
        return h

    def _option(self, group: dict[str, Any], name: str, value: Any) -> Any:
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
            how = "is" if value is None or value is True or value is False else "=="
            return f"{names(group)}.get({name!r}) {how} {literal(value, names)}"

        guard = Guard(f"{name!r} of a parameter group", lambda: bool(group.get(name) == value), source)
        self._once((id(group), name, "value"), guard)
        return value

    def step_count(self, optimizer: Any, held: dict[str, Any], steps: int) -> Any:
        """How many updates a parameter has had with this one; state entries that agree share a Scalar."""
        if not self._listens():
            return steps
        tensor = held["step"]
        done = sum(any(t is tensor for t in tensors) for _, tensors in self._counts.values())
        key = (id(optimizer), steps, done)
        found = self._counts.get(key)
        if found is None:
            read = Reading(
                (id(optimizer), done),
                lambda: float(tensor.raw) + 1 + done,
                lambda names: f"{names(tensor)}.raw.item() + {1.0 + done}",
            )
            scalar = self._scalar(key, read, float(steps), "step")
            found = self._counts[key] = (scalar, [])
            self.guards.append(_counts_guard(found[1]))
        if all(t is not tensor for t in found[1]):
            found[1].append(tensor)
        return found[0]

    def counters(self) -> list[list[Any]]:
        """Groups of step counts that every run raises by one."""
        return [tensors for _, tensors in self._counts.values()]

    def _scalar(self, key: Any, get: Reading, value: float, label: str) -> Scalar:
        found = self._scalars.get(key)
        if found is None:
            node = self.graph.scalar("input", (), get, label)
            found = self._scalars[key] = Scalar(self, node, value)
        return found

    # --- guards ---

    def _once(self, key: Any, guard: Guard) -> None:
        if key not in self._scalars:
            self._scalars[key] = None
            self.guards.append(guard)

    def guard_identity(self, what: str, get: Callable[[], Any], value: Any) -> None:
        """The recording holds while ``get()`` is ``value``."""
        self._once((id(value), what), Guard(what, lambda: get() is value))

    def guard_scalar(self, scalar: Scalar, question: str, other: Any, answer: Any) -> None:
        """The recording holds while a question about a scalar has the same answer."""
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
        self._once((id(node), question, repr(other)), Guard(what, same, source))


def _groups_guard(optimizer: Any) -> Guard:
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


def state_guard(optimizer: Any) -> Guard:
    """Whether the state of ``optimizer`` is still those very tensors, and its hooks are those."""
    state = optimizer.state
    entries = list(state.values())
    hooks = [(name, list(getattr(optimizer, name))) for name in STEP_HOOKS]
    held = [
        (each, name, value) for each in entries for name, value in each.items() if isinstance(value, Value)
    ]

    def same() -> bool:
        if optimizer.state is not state or len(state) != len(entries):
            return False
        if any(list(getattr(optimizer, name)) != then for name, then in hooks):
            return False
        return all(map(operator.is_, state.values(), entries)) and all(e.get(n) is v for e, n, v in held)

    def source(names: Names) -> str:
        found = names(state)
        checks = [f"{names(optimizer)}.state is {found} and len({found}) == {len(entries)}"]
        checks.append(f"all(map({names(operator.is_)}, {found}.values(), {names(entries)}))")
        checks += [f"[*{names(optimizer)}.{name}] == {then!r}" for name, then in hooks]
        checks += [f"{names(e)}.get({n!r}) is {names(v)}" for e, n, v in held]
        return " and ".join(checks)

    return Guard("the state or the hooks of an optimizer", same, source)


def _counts_guard(tensors: list[Any]) -> Guard:
    """Whether step counts that were one number are still one."""

    def source(names: Names) -> str:
        if len(tensors) < 2:
            return "True"
        return f"len({{{', '.join(f'{names(t)}.raw.item()' for t in tensors)}}}) == 1"

    return Guard(
        "which parameters an optimizer updates", lambda: len({t.raw.item() for t in tensors}) < 2, source
    )


def _element(group: dict[str, Any], name: str, index: int) -> Reading:
    def source(names: Names) -> str:
        return f"{names(group)}[{name!r}][{index}]"

    return Reading((id(group), name, index), lambda: group[name][index], source)


def _current(node: Node) -> dict[Node, float]:
    """The scalar inputs behind ``node``, read now."""
    if node.op == "input":
        return {node: node.value()}
    found: dict[Node, float] = {}
    for ref in node.refs:
        found |= _current(ref.node)
    return found
