"""The output of ``tenon plan``: a table for people, plain values for programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich.markup import escape
from rich.table import Table

from tenon.extend import run_parts
from tenon_plan.plan import predict
from tenon_plan.plan.graph_plan import GraphPlan
from tenon_plan.plan.quantities import duration, size
from tenon_plan.plan.recorded_calls import RecordedCall


@dataclass(frozen=True)
class Plan:
    """A prediction with its inputs."""

    name: str
    batch: int
    """The number of samples of a step."""
    inputs: predict.Inputs
    times: predict.Times
    sent: float
    """Bytes that each rank sends to other nodes in a step, on average."""

    @classmethod
    def of(cls, config: run_parts.RunConfig, inputs: predict.Inputs) -> Plan:
        """Predict a run from its inputs."""
        cluster = inputs.cluster
        sent = predict.between_nodes(inputs).sent / cluster.ranks_per_node
        name = config.recipe or config.model or ""
        batch = min(config.batch_size, inputs.rehearsed.samples)
        if config.data_parallel.shard_optimizer and cluster.ranks > 1:
            inputs.remarks.append(
                "Memory: the optimizer's state is the last rank's share; others hold more where whole"
                " parameters do not divide evenly."
            )
        if batch < config.batch_size:
            inputs.remarks.append(
                f"There are {batch} training samples, so a step has these and not {config.batch_size}."
            )
        return cls(name, batch, inputs, predict.times(inputs), sent)

    @property
    def share(self) -> float:
        """The number of samples of a rank in a step."""
        return self.batch / self.inputs.cluster.ranks

    @property
    def reduced(self) -> int:
        """The bytes that each rank passes to the calls of a step."""
        return sum(recorded.size for recorded in self.calls)

    @property
    def calls(self) -> tuple[RecordedCall, ...]:
        """The calls of a step; a single rank needs none of them."""
        return self.inputs.rehearsed.calls if self.inputs.cluster.ranks > 1 else ()

    @property
    def speedup(self) -> float | None:
        """The speedup over one rank with the whole batch."""
        step, single = self.times.step, self.times.single
        return None if step is None or single is None else single / step

    @property
    def assumptions(self) -> list[str]:
        """Sentences on where each number comes from."""
        sentences = list(self.inputs.remarks)
        if self.share < 1:
            sentences.append(
                f"A batch of {self.batch} leaves some of {self.inputs.cluster.ranks} ranks without a sample."
            )
        copied = self.inputs.rehearsed.memory["weights"] + self.inputs.rehearsed.memory["optimizer"]
        sentences.append(
            f"Memory: rank 0 needs more, a copy for checkpoints ({size(copied)}) and what writes the metrics."
        )
        if self.inputs.tried:
            sentences.append("Evaluation and checkpoints are left out.")
        elif self.inputs.cluster.ranks > 1:
            sentences.append("No rank is slower than the others; evaluation and checkpoints are left out.")
        return sentences

    def memory(self) -> dict[str, int]:
        """Return the bytes of one rank, by use."""
        measured = self.inputs.rehearsed.memory
        counted = measured["weights"] + measured["buckets"] + measured["optimizer"] + measured["arrays"]
        communicator = self.inputs.replayed.memory if self.inputs.replayed is not None else 0
        peak = max(measured["peak"], counted) + communicator
        return {
            "parameters_and_buffers": measured["weights"],
            "gradients": measured["gradients"],
            "gradient_buckets": measured["buckets"],
            "optimizer_state": measured["optimizer"],
            "activations_and_temporaries": max(0, measured["arrays"] - measured["gradients"]),
            "communicator": communicator,
            "process_libraries_data": peak - communicator - counted,
            "peak_training": peak,
            "peak": max(peak, measured["evaluation"] + communicator),
        }

    def plain(self) -> dict[str, object]:
        """Return everything as plain values in bytes and seconds."""
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
                {"kind": each.call.kind, "name": each.call.name, "bytes": each.size} for each in self.calls
            ],
            "buckets": self.inputs.rehearsed.buckets if self.calls else 0,
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
                "waiting": times.waiting,
                "bandwidth": times.bandwidth,
                "latency": times.latency,
                "engine": times.engine,
                "step": times.step,
                "one_rank": times.single,
            },
            "samples_per_second": None if times.step is None else self.batch / times.step,
            "speedup": self.speedup,
            "efficiency": None if self.speedup is None else self.speedup / cluster.ranks,
            "graph": None if self.inputs.rehearsed.graph is None else self.inputs.rehearsed.graph.plain(),
            "bottleneck": self.bottleneck,
            "assumptions": self.assumptions,
        }  # fmt: skip

    @property
    def bottleneck(self) -> str:
        """The largest part of a step, in words."""
        text = predict.bottleneck(self.times, self.share, self.calls)
        alone = self.speedup is not None and self.speedup < 1 < self.inputs.cluster.ranks
        return f"one rank alone is faster; {text}" if alone else text

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """Yield section titles (with empty cells), and rows of a quantity, its value and a remark."""
        cluster = self.inputs.cluster
        yield "bytes of a step", "", ""
        if cluster.ranks == 1:
            yield "sent", "nothing", "one rank"
        else:
            calls, buckets = len(self.calls), self.inputs.rehearsed.buckets
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
        yield from self._graph_rows()

    def _memory_rows(self) -> Iterator[tuple[str, str, str]]:
        usage = self.memory()
        yield "memory of a rank", "", ""
        yield "parameters and buffers", size(usage["parameters_and_buffers"]), "counted"
        yield "gradients", size(usage["gradients"]), "counted"
        if self.inputs.cluster.ranks > 1:
            yield "gradient buckets", size(usage["gradient_buckets"]), "counted"
        yield "optimizer state", size(usage["optimizer_state"]), "counted"
        yield "activations and temporaries", size(usage["activations_and_temporaries"]), "traced in one step"
        if usage["communicator"]:
            yield "communicator", size(usage["communicator"]), "measured: MPI and its shared memory"
        rest = "measured: the rest, with memory kept for the next step"
        yield "Python, libraries, data", size(usage["process_libraries_data"]), rest
        yield "peak while training", size(usage["peak_training"]), ""
        if usage["peak"] > 1.01 * usage["peak_training"]:
            yield "peak with evaluation", size(usage["peak"]), "evaluation needs more: eval_batch_size"
        if self.inputs.cluster.ranks_per_node > 1:
            node = size(usage["peak"] * self.inputs.cluster.ranks_per_node)
            yield "of a node", node, "at most: what ranks share counts for each"

    def _time_rows(self) -> Iterator[tuple[str, str, str]]:
        times, cluster, network = self.times, self.inputs.cluster, self.inputs.network
        at_least = "at least " if network is not None and not network.exact else ""
        yield "time of a step", "", ""
        yield "computing", duration(times.compute), f"{self.share:.3g} samples a rank"
        if cluster.ranks_per_node > 1:
            yield "sums in shared memory", duration(times.inside), ""
        if self.inputs.tried:
            yield "waiting for slower ranks", duration(times.waiting), ""
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

    def _graph_rows(self) -> Iterator[tuple[str, str, str]]:
        """Yield what the captured graph of the step says; nothing if there is none."""
        graph = self.inputs.rehearsed.graph
        if graph is None:
            return
        yield "graph of a step", "", ""
        yield "calls of ops", f"{graph.calls:,}", f"as recorded; {len(graph.kernels)} kernels when compiled"
        yield "operations", f"{graph.operations:,.0f}", "floating point, as far as ops state them"
        if self.inputs.cluster.sharing == 1 and self.times.compute:
            rate = graph.operations / self.times.compute / 1e9
            yield "speed of computing", f"{rate:.3g} GFLOP/s", ""
        yield from graph.program_rows("tenon.compile of the step takes this")


def show(prediction: Plan) -> None:
    """Print the plan."""
    cluster, screen = prediction.inputs.cluster, run_parts.Screen()
    ranks, threads = _count(cluster.ranks, "rank"), _count(cluster.threads, "thread")
    nodes = "1 node" if cluster.nodes == 1 else f"{cluster.nodes} nodes of {cluster.ranks_per_node}"
    screen.print(
        f"{escape(prediction.name)}: {prediction.inputs.rehearsed.parameters:,} parameters, batch of"
        f" {prediction.batch}, {ranks} on {nodes}, {threads} each",
        soft_wrap=True,
    )
    screen.print(_table(prediction.rows()))
    screen.print("[bold]sources and assumptions[/]")
    for sentence in prediction.assumptions:
        screen.print(f"- {escape(sentence)}", soft_wrap=True)


def show_graph(prediction: GraphPlan) -> None:
    """Print the plan of a graph."""
    screen = run_parts.Screen()
    sizes = "".join(f", {name} = {size}" for name, size in prediction.sizes.items())
    calls = _count(prediction.calls, "call")
    screen.print(
        f"{escape(prediction.name)}: {prediction.parameters:,} parameters, {calls}{escape(sizes)}",
        soft_wrap=True,
    )
    screen.print(_table(prediction.rows()))


def _table(rows: Iterable[tuple[str, str, str]]) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    for quantity, value, remark in rows:
        if not value and not remark:
            table.add_row(f"[bold]{quantity}[/]")
        else:
            table.add_row("  " + escape(quantity), escape(value), escape(remark))
    return table


def _time(seconds: float | None) -> str:
    return "not known" if seconds is None else duration(seconds)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
