"""What ``tenon plan`` prints: a table for people, plain values for programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.markup import escape
from rich.table import Table

from tenon.extend import run_parts
from tenon_plan.plan import predict
from tenon_plan.plan.notes import Note
from tenon_plan.plan.quantities import duration, size


@dataclass(frozen=True)
class Plan:
    """A prediction, and what it rests on."""

    name: str
    batch: int
    """Samples of a step."""
    inputs: predict.Inputs
    times: predict.Times
    sent: float
    """Bytes that each rank sends to other nodes in a step, on average."""

    @classmethod
    def of(cls, config: run_parts.RunConfig, inputs: predict.Inputs) -> Plan:
        """Add up."""
        cluster = inputs.cluster
        sent = predict.between_nodes(inputs).sent / cluster.ranks_per_node
        name = config.recipe or config.model or ""
        batch = min(config.batch_size, inputs.rehearsed.samples)
        if config.data_parallel.shard_optimizer and cluster.ranks > 1:
            inputs.said.append(
                "Memory: the optimizer's state is the last rank's share; others hold more where whole"
                " parameters do not divide evenly."
            )
        if batch < config.batch_size:
            inputs.said.append(
                f"There are {batch} training samples, so a step has these and not {config.batch_size}."
            )
        return cls(name, batch, inputs, predict.times(inputs), sent)

    @property
    def share(self) -> float:
        """Samples of a rank in a step."""
        return self.batch / self.inputs.cluster.ranks

    @property
    def reduced(self) -> int:
        """Bytes that each rank gives to the calls of a step."""
        return sum(note.size for note in self.notes)

    @property
    def notes(self) -> tuple[Note, ...]:
        """The calls of a step; a rank that is alone needs none of them."""
        return self.inputs.rehearsed.notes if self.inputs.cluster.ranks > 1 else ()

    @property
    def speedup(self) -> float | None:
        """How much faster than one rank with the whole batch."""
        step, single = self.times.step, self.times.single
        return None if step is None or single is None else single / step

    @property
    def assumptions(self) -> list[str]:
        """Sentences: where each number comes from."""
        found = list(self.inputs.said)
        if self.share < 1:
            found.append(
                f"A batch of {self.batch} leaves some of {self.inputs.cluster.ranks} ranks without a sample."
            )
        copied = self.inputs.rehearsed.memory["weights"] + self.inputs.rehearsed.memory["optimizer"]
        found.append(
            f"Memory: rank 0 needs more, a copy for checkpoints ({size(copied)}) and what writes the metrics."
        )
        if self.inputs.cluster.ranks > 1:
            found.append("No rank is slower than the others; evaluation and checkpoints are left out.")
        return found

    def memory(self) -> dict[str, int]:
        """Bytes of one rank."""
        found = self.inputs.rehearsed.memory
        counted = found["weights"] + found["buckets"] + found["optimizer"] + found["arrays"]
        communicator = self.inputs.replayed.memory if self.inputs.replayed is not None else 0
        peak = max(found["peak"], counted) + communicator
        return {
            "parameters_and_buffers": found["weights"],
            "gradients": found["gradients"],
            "gradient_buckets": found["buckets"],
            "optimizer_state": found["optimizer"],
            "activations_and_temporaries": max(0, found["arrays"] - found["gradients"]),
            "communicator": communicator,
            "process_libraries_data": peak - communicator - counted,
            "peak_training": peak,
            "peak": max(peak, found["evaluation"] + communicator),
        }

    def plain(self) -> dict[str, Any]:
        """Everything as plain values: bytes, seconds."""
        cluster, times, network = self.inputs.cluster, self.times, self.inputs.network
        return {
            "name": self.name,
            "ranks": cluster.ranks,
            "nodes": cluster.nodes,
            "ranks_per_node": cluster.ranks_per_node,
            "cores_per_node": cluster.cores,
            "threads_per_rank": cluster.threads,
            "batch_size": self.batch,
            "parameters": self.inputs.rehearsed.parameters,
            "calls": [
                {"kind": note.call.kind, "name": note.call.name, "bytes": note.size} for note in self.notes
            ],
            "buckets": self.inputs.rehearsed.buckets if self.notes else 0,
            "bytes": {
                "given_per_rank": self.reduced,
                "sent_per_rank": self.sent,
                "sent_per_node": self.sent * cluster.ranks_per_node,
            },
            "memory": self.memory(),
            "network": None if network is None else {
                "bytes_per_second": network.bytes_per_second,
                "latency": network.latency,
                "source": network.source,
                "lower_bound": not network.exact,
            },
            "seconds": {
                "computing": times.compute,
                "processor": self.inputs.rehearsed.processor,
                "shared_memory": times.inside,
                "bandwidth": times.bandwidth,
                "latency": times.latency,
                "engine": times.engine,
                "step": times.step,
                "one_rank": times.single,
            },
            "samples_per_second": None if times.step is None else self.batch / times.step,
            "speedup": self.speedup,
            "efficiency": None if self.speedup is None else self.speedup / cluster.ranks,
            "bottleneck": self.bottleneck,
            "assumptions": self.assumptions,
        }  # fmt: skip

    @property
    def bottleneck(self) -> str:
        """In words."""
        found = predict.bottleneck(self.times, self.share, self.notes)
        alone = self.speedup is not None and self.speedup < 1 < self.inputs.cluster.ranks
        return f"one rank alone is faster; {found}" if alone else found

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """Sections' names (with empty cells), and lines: what, how much, remark."""
        cluster = self.inputs.cluster
        yield "bytes of a step", "", ""
        if cluster.ranks == 1:
            yield "sent", "nothing", "one rank"
        else:
            calls, buckets = len(self.notes), self.inputs.rehearsed.buckets
            yield (
                "summed over the ranks",
                size(self.reduced),
                f"{calls} calls; gradients in {_count(buckets, 'bucket')}",
            )
            on_network = cluster.nodes > 1
            where = (
                f"{size(self.sent * cluster.ranks_per_node)} a node"
                if on_network
                else "all is in shared memory"
            )
            yield "sent by each rank", size(self.sent) if on_network else "nothing", where
        yield from self._memory_rows()
        yield from self._time_rows()

    def _memory_rows(self) -> Iterator[tuple[str, str, str]]:
        found = self.memory()
        yield "memory of a rank", "", ""
        yield "parameters and buffers", size(found["parameters_and_buffers"]), "counted"
        yield "gradients", size(found["gradients"]), "counted"
        if self.inputs.cluster.ranks > 1:
            yield "gradient buckets", size(found["gradient_buckets"]), "counted"
        yield "optimizer state", size(found["optimizer_state"]), "counted"
        yield "activations and temporaries", size(found["activations_and_temporaries"]), "traced in one step"
        if found["communicator"]:
            yield "communicator", size(found["communicator"]), "measured: MPI and its shared memory"
        rest = "measured: the rest, with memory kept for the next step"
        yield "Python, libraries, data", size(found["process_libraries_data"]), rest
        yield "peak while training", size(found["peak_training"]), ""
        if found["peak"] > 1.01 * found["peak_training"]:
            yield "peak with evaluation", size(found["peak"]), "evaluation needs more: eval_batch_size"
        if self.inputs.cluster.ranks_per_node > 1:
            node = size(found["peak"] * self.inputs.cluster.ranks_per_node)
            yield "of a node", node, "at most: what ranks share counts for each"

    def _time_rows(self) -> Iterator[tuple[str, str, str]]:
        times, cluster, network = self.times, self.inputs.cluster, self.inputs.network
        at_least = "at least " if network is not None and not network.exact else ""
        yield "time of a step", "", ""
        yield "computing", duration(times.compute), f"{self.share:.3g} samples a rank"
        if cluster.ranks_per_node > 1:
            yield "sums in shared memory", duration(times.inside), ""
        if cluster.nodes > 1:
            yield "network: bandwidth", at_least + _time(times.bandwidth), ""
            yield "network: latency", at_least + _time(times.latency), ""
            yield "engine: copies and pauses", duration(times.engine), ""
        yield "step", at_least + _time(times.step), ""
        if times.step is not None:
            most = "at most " if at_least else ""
            yield "speed", f"{most}{self.batch / times.step:,.0f} samples/s", ""
            yield "computing's part of it", f"{most}{100 * times.compute / times.step:.0f} %", ""
            if self.speedup is not None:
                efficiency = f"{100 * self.speedup / cluster.ranks:.0f} % of {cluster.ranks} times"
                yield "against one rank", f"{most}{self.speedup:.3g} times", efficiency
        yield "bottleneck", "", self.bottleneck


def show(found: Plan) -> None:
    """Print the plan."""
    cluster, screen = found.inputs.cluster, run_parts.Screen()
    ranks, threads = _count(cluster.ranks, "rank"), _count(cluster.threads, "thread")
    nodes = "1 node" if cluster.nodes == 1 else f"{cluster.nodes} nodes of {cluster.ranks_per_node}"
    screen.print(
        f"{escape(found.name)}: {found.inputs.rehearsed.parameters:,} parameters, batch of {found.batch},"
        f" {ranks} on {nodes}, {threads} each",
        soft_wrap=True,
    )
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    for what, value, remark in found.rows():
        if not value and not remark:
            table.add_row(f"[bold]{what}[/]")
        else:
            table.add_row("  " + escape(what), escape(value), escape(remark))
    screen.print(table)
    screen.print("[bold]how it is known[/]")
    for sentence in found.assumptions:
        screen.print(f"- {escape(sentence)}", soft_wrap=True)


def _time(seconds: float | None) -> str:
    return "not known" if seconds is None else duration(seconds)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
