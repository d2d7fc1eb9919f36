"""From what was measured to what a step takes.

A step is computing, then the collective calls one after the other: ``tenon train`` overlaps them little. What
the ranks of a node do in shared memory was timed; what goes between nodes is the engine's own account of
bytes and rounds (``Communicator.traffic``), divided by the network's bandwidth, times its latency.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tenon.errors import ConfigError
from tenon.extend import Communicator, engine
from tenon_plan.plan.measure import Link, Rehearsed, Replayed
from tenon_plan.plan.notes import LARGE, SMALL, Note


@dataclass(frozen=True)
class Cluster:
    """Where the ranks are: ``ranks_per_node`` on nodes of ``cores`` cores, with ``threads`` threads each."""

    ranks: int
    ranks_per_node: int
    cores: int
    threads: int

    @property
    def nodes(self) -> int:
        """How many there are."""
        return self.ranks // self.ranks_per_node

    @property
    def sharing(self) -> float:
        """How many threads want each core."""
        return max(1.0, self.ranks_per_node * self.threads / self.cores)


@dataclass(frozen=True)
class Network:
    """What one node sends a second, and how long the first byte takes."""

    bytes_per_second: float
    latency: float
    source: str
    exact: bool = True
    """False: nothing is known of the real one, which is slower."""


@dataclass(frozen=True)
class Times:
    """The parts of a step, in seconds; None where the network is not known."""

    compute: float
    inside: float
    bandwidth: float | None
    latency: float | None
    engine: float
    single: float | None
    """A step of one rank with the whole batch."""

    @property
    def communication(self) -> float | None:
        """All but computing."""
        if self.bandwidth is None or self.latency is None:
            return None
        return self.inside + self.bandwidth + self.latency + self.engine

    @property
    def step(self) -> float | None:
        """The whole."""
        return None if self.communication is None else self.compute + self.communication


@dataclass
class Inputs:
    """What is known before anything is added up."""

    cluster: Cluster
    rehearsed: Rehearsed
    engine: type[Communicator]
    together: int
    idle: bool = False
    """Think other programs away: processor time counts, and the quickest tenth of all other timings."""
    replayed: Replayed | None = None
    network: Network | None = None
    compute: float | None = None
    """Given by the user."""
    alone: Rehearsed | None = None
    said: list[str] = field(default_factory=list)
    """What was measured, given and assumed: sentences."""


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def between_nodes(inputs: Inputs) -> engine.Traffic:
    """What the calls of a step cost one node on the network."""
    total, cluster = engine.Traffic(), inputs.cluster
    if cluster.nodes == 1:
        return total
    for note in inputs.rehearsed.notes:
        total += inputs.engine.traffic(note.call, cluster.ranks, cluster.ranks_per_node, beside=note.beside)
    return total


def moved_inside(inputs: Inputs) -> float:
    """Bytes that the ranks of one node read and write in the memory that they share."""
    count = inputs.cluster.ranks_per_node
    if count == 1:
        return 0.0
    return sum(inputs.engine.traffic(note.call, count, count).moved for note in inputs.rehearsed.notes)


def times(inputs: Inputs) -> Times:
    """The parts of a step."""
    cluster, network = inputs.cluster, inputs.network
    traffic = between_nodes(inputs)
    share = traffic.moved / cluster.ranks_per_node
    single = None if inputs.alone is None else computing(inputs.alone, inputs)
    bandwidth = latency = None if cluster.nodes > 1 else 0.0
    if network is not None and cluster.nodes > 1:
        bandwidth = traffic.sent / network.bytes_per_second
        latency = traffic.rounds * network.latency
    return Times(
        compute=_compute(inputs),
        inside=_inside(inputs),
        bandwidth=bandwidth,
        latency=latency,
        engine=traffic.paused + share * cluster.sharing / inputs.rehearsed.copied_per_second,
        single=single,
    )


def computing(rehearsed: Rehearsed, inputs: Inputs) -> float:
    """The median step of the slowest rehearsal that ran side by side: the others would wait for it."""
    if inputs.idle:
        return rehearsed.processor / min(inputs.cluster.threads, usable_cores())
    return max(statistics.median(seconds) for seconds in rehearsed.seconds)


def typical(seconds: Sequence[float], idle: bool) -> float:
    """The median, or what a tenth of all is quicker than."""
    return sorted(seconds)[len(seconds) // 10] if idle else statistics.median(seconds)


def fit(link: Link, inputs: Inputs, source: str, exact: bool) -> Network:
    """The bandwidth and the latency with which ``link``'s two sums take as long as they did.

    The small one is hardly anything but rounds, the large one hardly anything but bytes: two equations.
    """
    rows, known = [], []
    for note, seconds in ((SMALL, link.small), (LARGE, link.large)):
        cost = inputs.engine.traffic(note.call, link.ranks, 1, beside=note.beside)
        rows.append((cost.sent, cost.rounds))
        taken = typical(seconds, inputs.idle) - cost.paused
        known.append(taken - cost.moved / inputs.rehearsed.copied_per_second)
    per_byte, latency = np.linalg.solve(np.array(rows, float), np.array(known))
    if per_byte <= 0 or latency <= 0:
        raise ConfigError(
            f"the measured sums ({statistics.median(link.small) * 1e6:.0f} µs for 16 bytes,"
            f" {statistics.median(link.large) * 1e3:.1f} ms for 8 MiB) give no bandwidth and latency;"
            " something else keeps these machines busy. Try again, or give --network and --latency."
        )
    return Network(float(1 / per_byte), float(latency), source, exact)


def _compute(inputs: Inputs) -> float:
    if inputs.compute is not None:
        return inputs.compute
    return computing(inputs.rehearsed, inputs) * inputs.cluster.sharing


def _inside(inputs: Inputs) -> float:
    """The calls among the ranks of a node."""
    cluster = inputs.cluster
    count = cluster.ranks_per_node
    if count == 1:
        return 0.0
    if inputs.replayed is not None:
        return typical(inputs.replayed.seconds, inputs.idle) * max(1.0, count / inputs.replayed.ranks)
    rate = inputs.rehearsed.copied_per_second * min(1.0, inputs.together / count)
    return moved_inside(inputs) / count / rate


def bottleneck(found: Times, samples: float, calls: Sequence[Note]) -> str:
    """What most of a step goes to, and what would help, in words."""
    step = found.step
    if step is None:
        return "unknown without the network's rates"
    parts = {
        "computing": found.compute,
        "shared memory": found.inside,
        "bandwidth": found.bandwidth or 0.0,
        "latency": found.latency or 0.0,
        "engine": found.engine,
    }
    name = max(parts, key=lambda part: parts[part])
    share = f"{100 * parts[name] / step:.0f} % of a step"
    summed = sum(note.size for note in calls)
    match name:
        case "computing" if samples < 1:
            return f"too few samples: the batch has less than one for each rank, and {share} is computing"
        case "computing":
            return f"computing: {share}; more ranks shorten it as long as their shares of the batch do"
        case "shared memory":
            return (
                f"sums in the node's memory: {share}; fewer ranks with more threads each have less to add up"
            )
        case "bandwidth":
            return (
                f"the network's bandwidth: {share} is sending sums of {summed / 1e6:.1f} MB; "
                "larger batches (batch_size) make the same sums rarer"
            )
        case "latency":
            return f"the network's latency: {share} is {len(calls)} calls whose messages wait for each other"
        case _:
            return f"the engine itself: {share} is its copies and its pauses between looks at the network"
