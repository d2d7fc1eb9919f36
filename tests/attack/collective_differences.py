"""Every collective of ``tenon.distributed`` with one difference on one rank, of each kind that it may have.

Run by ranks, the arguments are a folder, into which rank r writes ``r.json``, and what the names of the cases contain.
"""

import json
import linecache
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import tenon as torch
import tenon.distributed as dist
import tenon.distributed.nn.functional as F
from tenon.errors import CollectiveMismatchError

ZEROS = "out_{v} = [torch.zeros_like({v}) for _ in range(n)]\n"
WIDE = "wide_{v} = torch.zeros(n * {v}.numel(), dtype={v}.dtype)\n"
COPIES = "copies_{v} = [{v} * (k + 1) for k in range(n)]\n"
LONG = "long_{v} = torch.cat([{v} * (k + 1) for k in range(n)])\n"
RING = "to, source = (rank + 1) % n, (rank - 1) % n\n"
#: Each collective: ``v`` is a tensor, ``r`` a root, ``o`` an operation, ``g`` a group; ``got`` is what it returns.
FORMS = {
    "all_reduce": "dist.all_reduce({v}, {o}, {g})",
    "all_reduce, async": "work = dist.all_reduce({v}, {o}, {g}, async_op=True)\nwork.wait()",
    "all_reduce_coalesced": "dist.all_reduce_coalesced([{v}, {v} * 2], {o}, {g})",
    "reduce": "dist.reduce({v}, {r}, {o}, {g})",
    "reduce, async": "dist.reduce({v}, {r}, {o}, {g}, async_op=True).wait()",
    "broadcast": "dist.broadcast({v}, {r}, {g})",
    "broadcast, async": "dist.broadcast({v}, {r}, {g}, async_op=True).wait()",
    "all_gather": ZEROS + "dist.all_gather(out_{v}, {v}, {g})\ngot += out_{v}",
    "all_gather, async": ZEROS + "dist.all_gather(out_{v}, {v}, {g}, async_op=True).wait()\ngot += out_{v}",
    "all_gather_into_tensor": WIDE + "dist.all_gather_into_tensor(wide_{v}, {v}, {g})\ngot.append(wide_{v})",
    "all_gather_single": WIDE + "dist.all_gather_single(wide_{v}, {v}, {g})\ngot.append(wide_{v})",
    "all_gather_coalesced": ZEROS
    + "dist.all_gather_coalesced([[o] for o in out_{v}], [{v}], {g})\ngot += out_{v}",
    "gather": ZEROS + "dist.gather({v}, out_{v} if rank == {r} else None, {r}, {g})\ngot += out_{v}",
    "scatter": COPIES + "dist.scatter({v}, copies_{v} if rank == {r} else None, {r}, {g})",
    "reduce_scatter": COPIES + "dist.reduce_scatter({v}, copies_{v}, {o}, {g})",
    "reduce_scatter_tensor": LONG + "dist.reduce_scatter_tensor({v}, long_{v}, {o}, {g})",
    "reduce_scatter_single": LONG + "dist.reduce_scatter_single({v}, long_{v}, {o}, {g})",
    "all_to_all": ZEROS + COPIES + "dist.all_to_all(out_{v}, copies_{v}, {g})\ngot += out_{v}",
    "all_to_all_single": LONG
    + "wide_{v} = torch.zeros_like(long_{v})\ndist.all_to_all_single(wide_{v}, long_{v}, {g})\ngot.append(wide_{v})",
    "all_to_all_single, uneven": "parts_{v} = [1 + k for k in range(n)]\nlong_{v} = torch.cat([{v}, {v}, {v}])[: sum(parts_{v})]\n"
    "wide_{v} = torch.zeros(n * parts_{v}[rank], dtype=long_{v}.dtype)\n"
    "dist.all_to_all_single(wide_{v}, long_{v}, [parts_{v}[rank]] * n, parts_{v}, {g})\ngot.append(wide_{v})",
    "barrier": "dist.barrier({g})",
    "barrier, async": "dist.barrier({g}, async_op=True).wait()",
    "monitored_barrier": "dist.monitored_barrier({g})",
    "all_gather_object": "found_{v} = [None] * n\ndist.all_gather_object(found_{v}, {v}.tolist(), {g})\ngot += found_{v}",
    "gather_object": "found_{v} = [None] * n\n"
    "dist.gather_object({v}.tolist(), found_{v} if rank == {r} else None, {r}, {g})\ngot += found_{v}",
    "broadcast_object_list": "found_{v} = [{v}.tolist(), rank]\ndist.broadcast_object_list(found_{v}, {r}, {g})\ngot += found_{v}",
    "scatter_object_list": "found_{v} = [None]\n"
    "dist.scatter_object_list(found_{v}, [[k, {v}.tolist()] for k in range(n)], {r}, {g})\ngot += found_{v}",
    "functional.all_reduce": "got.append(F.all_reduce({v}, {o}, {g}))",
    "functional.broadcast": "got.append(F.broadcast({v}, {r}, {g}))",
    "functional.reduce": "got.append(F.reduce({v}, {r}, {o}, {g}))",
    "functional.all_gather": "got += F.all_gather({v}, {g})",
    "functional.gather": "got += F.gather({v}, {r}, {g})",
    "functional.scatter": COPIES + "got.append(F.scatter(copies_{v}, {r}, {g}))",
    "functional.reduce_scatter": COPIES + "got.append(F.reduce_scatter({v}, copies_{v}, {o}, {g}))",
    "functional.all_to_all": ZEROS + COPIES + "got += F.all_to_all(out_{v}, copies_{v}, {g})",
    "functional.all_to_all_single": LONG + "got.append(F.all_to_all_single(long_{v}, long_{v}, {g}))",
    "backward": "x_{v} = {v}.clone().requires_grad_()\n(F.all_reduce(x_{v}, {o}, {g}) * x_{v}).sum().backward()\ngot.append(x_{v}.grad)",
    "compiled": "for _ in range(3):\n    got.append(compiled({v}))",
    "named": "with dist.named('{v}'):\n    dist.all_reduce(a, {o}, {g})",
    "communicator.all_reduce": "got.append(world.all_reduce({v}.numpy(), name='{v}').wait())",
    "communicator.all_gather": "got.append(world.all_gather({v}.numpy(), name='{v}').wait())",
    "new_group": "dist.new_group({ranks})",
}
#: Messages between two ranks: the receiver finds what differs; nobody waits for a message that does not come.
MESSAGES = {
    "send": RING + "other = torch.zeros_like({v})\n"
    "work = dist.isend({v}, to)\ndist.recv(other, source)\nwork.wait()\ngot.append(other)",
    "batch_isend_irecv": RING + "other = torch.zeros_like({v})\n"
    "for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, {v}, to), dist.P2POp(dist.irecv, other, source)]):\n"
    "    work.wait()\ngot.append(other)",
    "send, named": RING + "other = torch.zeros_like(a)\nwith dist.named('{v}'):\n"
    "    work = dist.isend(a, to)\n    dist.recv(other, source)\n    work.wait()\ngot.append(other)",
}
USUAL = {"v": "a", "r": "0", "o": "SUM", "g": "group=None", "ranks": "None"}
#: What one rank does otherwise: by what the form has in place of what.
CHANGES = {
    "shape": {"v": "half"},
    "dtype": {"v": "double"},
    "root": {"r": "1"},
    "operation": {"o": "MAX"},
    "tensor": {"v": "b"},
    "ranks": {"ranks": "[0]"},
}
#: Forms in which another variable is a difference: in others each rank may pass one of its own.
STRICT = (
    "all_reduce", "all_reduce, async", "reduce", "reduce, async", "functional.all_reduce",
    "functional.reduce", "named", "communicator.all_reduce", "communicator.all_gather", "send, named",
)  # fmt: skip
#: Forms whose values may have any size and type.
FREE = (
    "all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list",
    "all_to_all_single, uneven", "named", "send, named",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A collective and what the deviating rank does in its place."""

    form: str
    difference: str
    usual: str
    other: str

    def source(self, deviant, planted=True):
        """The Python of all ranks."""
        usual, other = (textwrap.indent(part or "pass", "        ") for part in (self.usual, self.other))
        body = f"    if rank == {deviant}:\n{other}\n    else:\n{usual}\n"
        if not planted:
            body = textwrap.indent(self.usual, "    ") + "\n"
        return f"def program(rank, n, world, compiled, a, b, half, double):\n    got = []\n{body}    return got\n"


def text(forms, form, **changes):
    return forms[form].format(**{**USUAL, **changes})


def cases():
    """All cases by name."""
    made = {}
    for forms in (FORMS, MESSAGES):
        for form, template in forms.items():
            usual = text(forms, form)
            differences = {
                name: text(forms, form, **change)
                for name, change in CHANGES.items()
                if all(f"{{{key}}}" in template for key in change)
            }
            if form not in STRICT:
                differences.pop("tensor", None)
            if form in FREE:
                differences.pop("shape", None)
                differences.pop("dtype", None)
            if forms is FORMS:
                differences["kind"] = "dist.all_gather_into_tensor(torch.zeros(n), torch.ones(1))"
                differences["another kind"] = "dist.reduce(a, 1, dist.ReduceOp.MIN)"
                differences["missing"] = ""
                differences["twice"] = f"{usual}\n{usual}"
            differences["late"] = f"time.sleep(0.1)\n{usual}"
            for difference, other in differences.items():
                made[f"{form}: {difference}"] = Case(form, difference, usual, other)
            if "{v}" in template and forms is FORMS:
                first, second = usual, text(forms, form, v="b")
                order = Case(form, "order", f"{first}\n{second}", f"{second}\n{first}")
                made[f"{form}: order"] = order
    return made


def run(source, name, rank, size, meet=False):
    """What this rank ends with, or the message of the mismatch; ``meet``: not all ranks raise it."""
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    import time

    space = {"torch": torch, "dist": dist, "F": F, "time": time}
    space.update(SUM=dist.ReduceOp.SUM, MAX=dist.ReduceOp.MAX)
    exec(compile(source, name, "exec"), space)
    a = torch.arange(6.0) * (rank + 1)
    b = torch.arange(6.0) + 10 * (rank + 1)
    compiled = torch.compile(lambda x: F.all_reduce(x) * 2)
    try:
        got = space["program"](rank, size, dist.get_communicator(), compiled, a, b, a[:3].clone(), a.double())
        dist.get_communicator().barrier(name="the end of the program")
    except CollectiveMismatchError as error:
        if meet:
            dist.get_communicator().barrier(name="the end of the program")
        return str(error)
    return json.loads(json.dumps([a.tolist(), b.tolist(), *got], default=lambda value: value.tolist()))


def outcomes(rank, size, names):
    """For each case, what ``run`` returns with the difference on the last rank and without."""
    made = cases()
    told = {}
    for name in names:
        case, deviant, file = made[name], size - 1, f"{name} of {size}.py"
        told[name] = [
            run(case.source(deviant), f"planted, {file}", rank, size, case.form in MESSAGES),
            run(case.source(deviant, planted=False), f"usual, {file}", rank, size),
        ]
    return told


def judge(case, ranks):
    """ "found", "harmless" or why the outcomes of all ranks are neither."""
    planted, common = [told[0] for told in ranks], [told[1] for told in ranks]
    if any(isinstance(each, str) for each in common):
        return f"a false alarm without the difference: {common[0]}"
    found = [each for each in planted if isinstance(each, str)]
    if case.difference == "late":
        return "harmless" if planted == common else f"to be late changes the outcome: {planted}"
    if case.form in MESSAGES:
        return "found" if found else f"no receiver finds it: {planted}"
    if len(found) == len(planted):
        if len(set(found)) > 1:
            return f"ranks report different things: {found}"
        return "found" if f"rank {len(ranks) - 1} at" in found[0] else f"the rank is not named: {found[0]}"
    if found:
        return f"only some ranks report: {planted}"
    return "harmless" if planted == common else f"mixed: {planted} for {common}"


def end_job(form, other):
    """Make the call of ``form``, in whose place the last rank runs ``other``: what happens ends the job."""
    size = dist.get_world_size()
    groups = [dist.new_group(list(range(size))) for _ in range(2)]
    usual = text(FORMS, form, g="group=one")
    case = Case(form, other, usual, {"group": text(FORMS, form, g="group=two")}.get(other, other))
    source = "import os, signal\n" + case.source(size - 1)
    linecache.cache["job.py"] = len(source), None, source.splitlines(keepends=True), "job.py"
    space = {"torch": torch, "dist": dist, "F": F, "one": groups[0], "two": groups[1]}
    space.update(SUM=dist.ReduceOp.SUM, MAX=dist.ReduceOp.MAX)
    exec(compile(source, "job.py", "exec"), space)
    a = torch.arange(6.0)
    space["program"](dist.get_rank(), size, dist.get_communicator(), torch.compile(F.all_reduce), a, a, a, a)
    dist.barrier()


if __name__ == "__main__":
    if sys.argv[1] == "end":
        end_job(*sys.argv[2:])
        sys.exit()
    folder, part = Path(sys.argv[1]), sys.argv[2]
    names = [name for name in cases() if part in name]
    told = outcomes(dist.get_rank(), dist.get_world_size(), names)
    (folder / f"{dist.get_rank()}.json").write_text(json.dumps(told))
