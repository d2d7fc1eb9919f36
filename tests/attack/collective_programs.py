"""Random programs of collectives, in which one of three ranks does something else once.

Run by ranks, the arguments are a folder, into which rank r writes ``r.json``, the first seed and the number of programs.
"""

import json
import linecache
import random
import sys
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path

import tenon as torch
import tenon.distributed as dist
import tenon.distributed.nn.functional as F
from tenon.errors import CollectiveMismatchError

SIZE = 3
VARIABLES = "abcd"
PRELUDE = """
def reduce(t):
    dist.all_reduce(t)


def twice_wrapped(t):
    reduce(t)


def gather(t):
    out = [torch.zeros(3, dtype=t.dtype) for _ in range(3)]
    dist.all_gather(out, t)
    t.copy_(sum(out))


def spread(t, root):
    dist.broadcast(t, root)


@torch.compile
def summed(t):
    return F.all_reduce(t) * 1


class Owner:
    def __init__(self, named):
        self.named = named

    def reduce(self, key):
        t = self.named[key]
        dist.all_reduce(t)

"""
#: What a statement may be: ``v`` and ``w`` are variables, ``r`` is a root, ``i`` is the index of ``v``.
FORMS = {
    "all_reduce": "dist.all_reduce({v})",
    "maximum": "dist.all_reduce({v}, dist.ReduceOp.MAX)",
    "reduce": "dist.reduce({v}, {r})",
    "broadcast": "dist.broadcast({v}, {r})",
    "all_gather": "out = [torch.zeros(3) for _ in range(3)]\ndist.all_gather(out, {v})\n{v}.copy_(sum(out))",
    "into": "out = torch.zeros(9)\ndist.all_gather_into_tensor(out, {v})\n{v}.copy_(out[3:6] + out[:3])",
    "scatter_sum": "part = torch.zeros(1)\ndist.reduce_scatter_tensor(part, {v})\n{v}.add_(part)",
    "exchange": "out = torch.zeros(3)\ndist.all_to_all_single(out, {v})\n{v}.copy_(out)",
    "objects": "found = [None] * 3\ndist.all_gather_object(found, {v}.tolist())\n{v}.copy_(torch.tensor(found).sum(0))",
    "object": "of_{v} = [{v}.tolist()]\ndist.broadcast_object_list(of_{v}, {r})\n{v}.copy_(torch.tensor(of_{v}[0]))",
    "barrier": "dist.barrier()",
    "F.all_reduce": "{v}.copy_(F.all_reduce({v}))",
    "F.broadcast": "{v}.copy_(F.broadcast({v}, {r}))",
    "F.all_gather": "{v}.copy_(F.all_gather({v})[1] * 2)",
    "coalesced": "dist.all_reduce_coalesced([{v}, {w}])",
    "compiled": "{v}.copy_(summed({v}))",
    "loop": "for key in '{v}{w}':\n    t = named[key]\n    dist.all_reduce(t)",
    "loop of an object": "for key in '{v}{w}':\n    owner.reduce(key)",
    "objects of a loop": "for key in '{v}{w}':\n    found = [None] * 3\n    dist.all_gather_object(found, named[key].tolist())\n"
    "    named[key].copy_(torch.tensor(found).sum(0))",
    "wrapped": "reduce({v})",
    "wrapped twice": "twice_wrapped({v})",
    "wrapped gather": "gather({v})",
    "wrapped broadcast": "spread({v}, {r})",
    "list": "dist.all_reduce(values[{i}])",
    "dict": "gather(named['{v}'])",
    "named": "with dist.named('{v}'):\n    gather({v})",
}
STRICT = ("all_reduce", "maximum", "reduce", "scatter_sum", "F.all_reduce")
LOOPS = ("loop", "loop of an object")
"""Forms in which another variable is a difference: in others each rank may pass one of its own."""
ROOTED = tuple(name for name, form in FORMS.items() if "{r}" in form)
STYLES = ("arms", "functions", "early return", "order", "inline")


@dataclass(frozen=True)
class Statement:
    """A collective on variables, from root ``r``; ``extra`` changes the text."""

    form: str
    v: str
    w: str
    r: int
    extra: tuple = ()

    def text(self):
        text = FORMS[self.form].format(v=self.v, w=self.w, r=self.r, i=VARIABLES.index(self.v))
        return text.replace(*self.extra) if self.extra else text


@dataclass(frozen=True)
class Program:
    """Statements of most ranks, those of ``deviant``, and how the source tells the ranks apart."""

    common: tuple
    other: tuple
    deviant: int
    style: str
    order: tuple = ()

    def source(self, planted=True):
        """The Python of the program; not ``planted``: as all ranks run it without the difference."""
        common = "\n".join(each.text() for each in self.common)
        other = "\n".join(each.text() for each in self.other) or "pass"
        prelude = PRELUDE + "def program(rank, values):\n    a, b, c, d = values\n"
        prelude += "    named = dict(zip('abcd', values, strict=True))\n    owner = Owner(named)\n"
        if not planted:
            return prelude + textwrap.indent(common or "pass", "    ")
        test = f"rank == {self.deviant}"
        if self.style == "functions":
            body = f"def one():\n{textwrap.indent(common or 'pass', '    ')}\n"
            body += f"def another():\n{textwrap.indent(other, '    ')}\n"
            body += f"(another if {test} else one)()"
        elif self.style == "early return":
            body = f"if {test}:\n{textwrap.indent(other, '    ')}\n    return\n{common}"
        elif self.style == "order":
            steps = [
                f"def step{n}():\n{textwrap.indent(s.text(), '    ')}" for n, s in enumerate(self.common)
            ]
            usual = "".join(f"step{n}, " for n in range(len(self.common)))
            unusual = "".join(f"step{n}, " for n in self.order)
            body = "\n".join(steps) + f"\nfor step in ({unusual}) if {test} else ({usual}):\n    step()"
        elif self.style == "inline":
            body = self._inline(test)
        else:
            body = f"if {test}:\n{textwrap.indent(other, '    ')}\n"
            body += f"else:\n{textwrap.indent(common or 'pass', '    ')}"
        return prelude + textwrap.indent(body, "    ")

    def _inline(self, test):
        """Each common statement where both have it, and branches around what only one side has."""
        lines, mine = [], list(self.other)
        for each in self.common:
            if mine and mine[0] == each:
                lines.append(each.text())
                mine.pop(0)
            elif each in mine:
                while mine[0] != each:
                    lines.append(f"if {test}:\n{textwrap.indent(mine.pop(0).text(), '    ')}")
                lines.append(mine.pop(0).text())
            else:
                lines.append(f"if not {test}:\n{textwrap.indent(each.text(), '    ')}")
        lines += [f"if {test}:\n{textwrap.indent(each.text(), '    ')}" for each in mine]
        return "\n".join(lines) or "pass"


def statement(draw):
    v, w = draw.sample(VARIABLES, 2)
    return Statement(draw.choice(list(FORMS)), v, w, draw.randrange(SIZE))


def make(seed):
    """The program of ``seed``."""
    draw = random.Random(seed)
    common = [statement(draw) for _ in range(draw.randint(2, 7))]
    other, order = list(common), list(range(len(common)))
    kind = draw.choice(("swap", "skip", "repeat", "root", "variable", "shape", "dtype", "operation"))
    at = draw.randrange(len(common))
    each = common[at]
    style = draw.choice(STYLES)
    if kind == "root" and each.form in ROOTED:
        other[at] = replace(each, r=(each.r + 1) % SIZE)
    elif kind == "variable" and each.form in STRICT + LOOPS:
        other[at] = replace(each, v=each.w, w=each.v)
    elif kind == "shape" and each.form == "all_reduce":
        other[at] = replace(each, extra=(f"({each.v})", f"({each.v}[:2])"))
    elif kind == "dtype" and each.form in ("all_reduce", "broadcast"):
        other[at] = replace(each, extra=(f"({each.v}", f"({each.v}.double()"))
    elif kind == "operation" and each.form == "all_reduce":
        other[at] = replace(each, form="maximum")
    elif kind == "skip":
        del other[at], order[at]
    elif kind == "repeat":
        other.insert(at, each)
        order.insert(at, at)
    else:
        last = draw.randrange(len(common) - 1)
        last += last >= at
        other[at], other[last] = other[last], other[at]
        order[at], order[last] = order[last], order[at]
    if len(set(order)) == len(common) and order == sorted(order) and style in ("order", "inline"):
        style = "arms"  # The statements differ, not their order.
    return Program(tuple(common), tuple(other), draw.randrange(SIZE), style, tuple(order))


def smaller(program):
    """Programs with one statement less."""
    for each in dict.fromkeys(program.common):
        if each in program.other and program.style != "order":
            common, other = list(program.common), list(program.other)
            common.remove(each)
            other.remove(each)
            yield replace(program, common=tuple(common), other=tuple(other))


def run(source, name, rank):
    """The final variables of this rank, or the message of the mismatch."""
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    space = {"torch": torch, "dist": dist, "F": F}
    exec(compile(source, name, "exec"), space)
    values = [torch.tensor([1.0, 2.0, 5.0]) * (10**n) + rank * (n + 1) for n in range(len(VARIABLES))]
    try:
        space["program"](rank, values)
        dist.get_communicator().barrier(name="the end of the program")
    except CollectiveMismatchError as error:
        return str(error)
    return [value.tolist() for value in values]


def outcomes(rank, programs):
    """For each program, by name, what ``run`` returns with the difference and without."""
    return {
        name: (
            run(program.source(), f"planted{name}.py", rank),
            run(program.source(planted=False), f"common{name}.py", rank),
        )
        for name, program in programs.items()
    }


def judge(program, ranks):
    """ "found", "harmless" or the reason why the outcomes of all ranks are neither."""
    messages = [planted for planted, _ in ranks]
    if any(isinstance(common, str) for _, common in ranks):
        return f"a false alarm without the difference: {ranks[0][1]}"
    if all(isinstance(message, str) for message in messages):
        if len(set(messages)) > 1:
            return f"ranks report different things: {messages}"
        if f"rank {program.deviant} at" not in messages[0]:
            return f"the report does not name rank {program.deviant}: {messages[0]}"
        return "found"
    if any(isinstance(message, str) for message in messages):
        return f"only some ranks report: {messages}"
    if all(planted == common for planted, common in ranks):
        return "harmless"
    return f"mixed: {ranks}"


if __name__ == "__main__":
    folder, first, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    rank = dist.get_rank()
    made = {str(seed): make(seed) for seed in range(first, first + count)}
    (folder / f"{rank}.json").write_text(json.dumps(outcomes(rank, made)))
