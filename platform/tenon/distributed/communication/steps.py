"""Read the source of the frames that lead to a collective: from where its tensor comes, frame by frame.

A ``Step`` states of one frame which variables to search for the tensor; ``Reading`` makes the steps of a
chain of calls, once.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Mapping, Sequence
from types import CodeType, FrameType
from typing import NamedTuple, TypeAlias

from tenon.distributed.communication import dataflow, references, source

#: The position of the tensor among the arguments of a call: its index, and its keyword.
Argument: TypeAlias = tuple[int, str]
FIRST: Argument = (0, "tensor")
INPUT: Argument = (1, "tensor")


class Followed(NamedTuple):
    """What ``code`` has from its caller: parameters that are values or keys, and variables of its closure."""

    code: CodeType
    wanted: frozenset[str]
    keyed: frozenset[str]
    free: frozenset[str]


class Step(NamedTuple):
    """The call of one frame: its code and instruction, and which variables to search for the tensor."""

    depth: int
    code: CodeType
    instruction: int
    variables: tuple[str, ...] = ()
    """Variables of loops that the tensor comes from, and ``labels``."""
    labels: frozenset[str] = frozenset()
    """Those of them that choose an item."""
    keys: frozenset[str] = frozenset()
    """All variables that choose an item."""
    choosing: frozenset[str] = frozenset()
    """Variables of loops in which the tensor is chosen."""
    passed: frozenset[str] = frozenset()
    """All variables that the call passes on."""
    names: tuple[str, ...] = ()
    """Variables of the module that the code mentions."""
    loops: frozenset[str] = frozenset()
    """All variables of loops."""
    follows: bool = False
    """Whether the frame passes the tensor on, so that its variables are searched."""

    def may_hold(self, variable: str, key: int | str | None, values: Mapping[str, object]) -> bool:
        """Whether a later call may look for the tensor in ``variable`` only: not in what the call passes."""
        owner = variable.partition(".")[0]
        return (owner in values or owner in self.names) and (
            key is not None or owner != variable or owner not in self.passed
        )

    def is_outside(self, variable: str) -> bool:
        """Whether ``variable`` is not one of the frame itself."""
        owner = variable.partition(".")[0]
        return owner in self.names or owner in self.code.co_freevars

    def owner_of_container(self, values: Mapping[str, object]) -> str:
        """The owner of the variable of which ``keys`` choose an item, if it is of a function around; else
        empty."""
        containers = self.passed - self.keys
        if not containers or not all(map(self.is_outside, containers)):
            return ""
        owners = {self.owner_of(each, values) for each in containers}
        return owners.pop() if len(owners) == 1 else ""

    def owner_of(self, variable: str, values: Mapping[str, object]) -> str:
        """The function, or the module, to which ``variable`` of this frame belongs."""
        owner, code = variable.partition(".")[0], self.code
        file = os.path.basename(code.co_filename)
        if owner in code.co_freevars:
            return f"{file} {code.co_qualname.rpartition('.<locals>.')[0]}"
        if owner not in values:
            return file
        return f"{file} {code.co_qualname}"


class Reading:
    """What the source of a chain of calls states, the innermost first; ``argument`` is where the call has the
    tensor, or what a call further in has from its caller."""

    def __init__(
        self,
        frames: Sequence[tuple[int, FrameType]],
        argument: Argument | Followed | None,
        is_callback: bool,
        strict: bool,
    ) -> None:
        self._strict = strict
        self.steps: list[Step] = []
        self.expression: str | None = None
        """The source of the tensor, if it is a name."""
        self.argument: ast.expr | None = None
        self.loops = False
        """Whether the tensor is another one each time, by a loop."""
        self.chooses = False
        """Whether it may be any of several."""
        self.returned = False
        """Whether a function returns it, which may choose, where all ranks pass the same tensor."""
        self.computed = False
        """Whether a rank may compute which one."""
        self.followed = argument if isinstance(argument, Followed) else None
        """What comes from the caller of the outermost frame that is known."""
        self._where = None if isinstance(argument, Followed) else argument
        follows = argument is not None
        for depth, frame in frames:
            follows = follows and self._follow(depth, frame)
            if not follows:
                self.followed = None
                break
        if is_callback and self.followed is not None:
            # A key of a closure, or an argument, is another one for each callback.
            self._label(self.followed.keyed | (self.steps[-1].keys & self.followed.free))
        self.steps += [Step(depth, each.f_code, each.f_lasti) for depth, each in frames[len(self.steps) :]]

    def _follow(self, depth: int, frame: FrameType) -> bool:
        """Add the step of ``frame``; return whether the tensor comes from its caller."""
        code, instruction = frame.f_code, frame.f_lasti
        expression = source.expression_at(code, instruction)
        passed, keyed = ([], []) if expression is None else self._passed(code, expression)
        any_passed = bool(passed or keyed)
        definitions, around = dataflow.definitions_at(code, instruction) if any_passed else ({}, ())
        flow = dataflow.trace(passed, keyed, definitions)
        targets = source.loop_variables(code)
        loops = targets.union(name for name, each in definitions.items() if any(one.in_loop for one in each))
        mapped = expression is not None and any(map(references.is_loop, [expression, *passed]))
        if mapped and self.steps and self.followed is not None:
            self._label(self.followed.keyed)  # The parameters are other ones each time.
        takes = references.takes(passed)
        if (mapped or takes) and self.steps and self.followed is not None:
            last, wanted = self.steps[-1], self.followed.wanted
            variables = tuple(sorted({*last.variables, *wanted}))
            self.steps[-1] = last._replace(variables=variables, loops=last.loops | wanted)
        self.computed = self.computed or flow.computed
        self.loops = self.loops or bool(flow.names & targets) or mapped or flow.chooses or takes
        self.chooses = self.chooses or self.loops or any(map(references.is_choice, passed))
        if flow.returned and self._strict:
            self.returned = True
            flow.around.update(flow.around_returned)
        step = Step(
            depth,
            code,
            instruction,
            variables=tuple(sorted(flow.names & loops)),
            labels=frozenset(flow.keys & loops),
            keys=frozenset(flow.keys),
            choosing=frozenset((flow.names & targets) | flow.around).union(around if takes else ()),
            passed=frozenset(references.variables_in(passed)),
            names=references.searched(source.module_variables(code), frame.f_globals) if any_passed else (),
            loops=frozenset(loops),
            follows=any_passed,
        )
        self.steps.append(step)
        parameters = references.parameters_of(code)
        values, keys = (
            frozenset(each.intersection(parameters)) for each in (flow.names - flow.keys, flow.keys)
        )
        free = frozenset(flow.names.intersection(code.co_freevars))
        self.followed = Followed(code, values, keys, free)
        return bool(values or keys or free) or (any_passed and references.is_comprehension(code))

    def _passed(self, code: CodeType, expression: ast.expr) -> tuple[list[ast.expr], list[ast.expr]]:
        """The values and the keys that ``expression`` of ``code`` passes to the frame within."""
        inner = self.followed
        if inner is None:
            return self._find_argument(expression), []
        passed = references.passed_to(inner.code, inner.wanted, bool(inner.free), expression)
        keyed = references.passed_to(inner.code, inner.keyed, False, expression) if inner.keyed else []
        outside = inner.free.intersection(code.co_cellvars)
        passed += [ast.Name(name) for name in sorted(outside - inner.keyed)]
        keyed += [ast.Name(name) for name in sorted(outside & inner.keyed)]
        return passed, keyed

    def _label(self, keys: frozenset[str]) -> None:
        """Let the values of ``keys`` in the outermost step so far distinguish calls."""
        if keys:
            last = self.steps[-1]
            variables = tuple(sorted({*last.variables, *keys}))
            self.steps[-1] = last._replace(labels=last.labels | keys, variables=variables)
            self.loops = self.chooses = True

    def _find_argument(self, expression: ast.expr) -> list[ast.expr]:
        """What the call passes as the tensor, in a list; without such an argument, the called variable."""
        if not isinstance(expression, ast.Call):
            return []
        index, keyword = self._where or FIRST
        found = [each.value for each in expression.keywords if each.arg == keyword]
        found = [*found, *expression.args[index : index + 1]][:1]
        if not found:
            return [expression.func] if isinstance(expression.func, ast.Name) else []
        self.argument = found[0]
        if references.named(found[0]):
            self.expression = shortened(found[0])
        return found


def is_tenon(frame: FrameType) -> bool:
    """Whether ``frame`` runs code of this library rather than of the program."""
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return package == "tenon" or package.startswith("tenon_")


def shortened(expression: ast.expr) -> str:
    """The source of ``expression``, as a name."""
    return f"`{ast.unparse(expression)[: source.LONGEST]}`"
