"""Predict the time of a step from the measurements.

A step is computing, then the collective calls one after the other: ``tenon train`` overlaps them little. The
time of a node's ranks in shared memory was measured, and where all ranks fit on this machine, their steps
together, which last as long as those of the slowest; the time between nodes is computed from the bytes and
rounds of the engine's own cost model (``Communicator.traffic``), with the network's bandwidth and latency.
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
from tenon_plan.plan.recorded_calls import LARGE, SMALL, RecordedCall


@dataclass(frozen=True)
class Cluster:
    """The placement of the ranks: ``ranks_per_node`` on nodes of ``cores`` cores, each with ``threads``."""

    ranks: int
    ranks_per_node: int
    cores: int
    threads: int

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return self.ranks // self.ranks_per_node

    @property
    def sharing(self) -> float:
        """The number of threads per core, at least 1."""
        return max(1.0, self.ranks_per_node * self.threads / self.cores)


@dataclass(frozen=True)
class Network:
    """The bandwidth and latency of a node's network."""

    bytes_per_second: float
    latency: float
    source: str
    exact: bool = True
    """False if the real network is unknown and slower than this."""


@dataclass(frozen=True)
class Times:
    """The parts of a step, in seconds; None where the network is not known."""

    compute: float
    inside: float
    waiting: float
    """For the slower ranks of a node, where real ranks were timed."""
    bandwidth: float | None
    latency: float | None
    engine: float
    single: float | None
    """A step of one rank with the whole batch."""

    @property
    def communication(self) -> float | None:
        """The time of everything but computing."""
        if self.bandwidth is None or self.latency is None:
            return None
        return self.inside + self.waiting + self.bandwidth + self.latency + self.engine

    @property
    def step(self) -> float | None:
        """The time of the whole step."""
        return None if self.communication is None else self.compute + self.communication


@dataclass
class Inputs:
    """The measurements and assumptions of a prediction."""

    cluster: Cluster
    rehearsed: Rehearsed
    engine: type[Communicator]
    together: int
    idle: bool = False
    """Whether to discount other programs: count processor time, and the fastest tenth of other timings."""
    replayed: Replayed | None = None
    tried: Sequence[float] = ()
    """Seconds of steps of all ranks together, where they could be started here."""
    network: Network | None = None
    compute: float | None = None
    """Given by the user."""
    alone: Rehearsed | None = None
    remarks: list[str] = field(default_factory=list)
    """Sentences on what was measured, given and assumed."""


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def between_nodes(inputs: Inputs) -> engine.Traffic:
    """Return the network traffic of one node in a step."""
    total, cluster = engine.Traffic(), inputs.cluster
    if cluster.nodes == 1:
        return total
    for recorded in inputs.rehearsed.calls:
        total += inputs.engine.traffic(
            recorded.call, cluster.ranks, cluster.ranks_per_node, beside=recorded.beside
        )
    return total


def moved_inside(inputs: Inputs) -> float:
    """Return the bytes that the ranks of one node read and write in shared memory in a step."""
    count = inputs.cluster.ranks_per_node
    if count == 1:
        return 0.0
    return sum(
        inputs.engine.traffic(recorded.call, count, count).moved for recorded in inputs.rehearsed.calls
    )


def times(inputs: Inputs) -> Times:
    """Return the times of the parts of a step."""
    cluster, network = inputs.cluster, inputs.network
    traffic = between_nodes(inputs)
    share = traffic.moved / cluster.ranks_per_node
    single = None if inputs.alone is None else computing(inputs.alone, inputs)
    bandwidth = latency = None if cluster.nodes > 1 else 0.0
    if network is not None and cluster.nodes > 1:
        bandwidth = traffic.sent / network.bytes_per_second
        latency = traffic.rounds * network.latency
    compute, inside = _compute(inputs), _inside(inputs)
    return Times(
        compute=compute,
        inside=inside,
        waiting=max(0.0, statistics.median(inputs.tried) - compute - inside) if inputs.tried else 0.0,
        bandwidth=bandwidth,
        latency=latency,
        engine=traffic.paused + share * cluster.sharing / inputs.rehearsed.copied_per_second,
        single=single,
    )


def computing(rehearsed: Rehearsed, inputs: Inputs) -> float:
    """Return the median step of the slowest concurrent rehearsal, as the other ranks would wait for it."""
    if inputs.idle:
        return rehearsed.processor / min(inputs.cluster.threads, usable_cores())
    return max(statistics.median(seconds) for seconds in rehearsed.seconds)


def typical(seconds: Sequence[float], idle: bool) -> float:
    """Return the median, or with ``idle`` the first decile."""
    return sorted(seconds)[len(seconds) // 10] if idle else statistics.median(seconds)


def fit(link: Link, inputs: Inputs, source: str, exact: bool) -> Network:
    """Fit the bandwidth and the latency to the times of ``link``'s two all-reduces.

    The small one depends almost only on latency, the large one on bandwidth: two linear equations.
    """
    rows, network_seconds = [], []
    for recorded, seconds in ((SMALL, link.small), (LARGE, link.large)):
        cost = inputs.engine.traffic(recorded.call, link.ranks, 1, beside=recorded.beside)
        rows.append((cost.sent, cost.rounds))
        elapsed = typical(seconds, inputs.idle) - cost.paused
        network_seconds.append(elapsed - cost.moved / inputs.rehearsed.copied_per_second)
    per_byte, latency = np.linalg.solve(np.array(rows, float), np.array(network_seconds))
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
    """Return the time of a step's calls among the ranks of a node."""
    cluster = inputs.cluster
    count = cluster.ranks_per_node
    if count == 1:
        return 0.0
    if inputs.replayed is not None:
        return typical(inputs.replayed.seconds, inputs.idle) * max(1.0, count / inputs.replayed.ranks)
    rate = inputs.rehearsed.copied_per_second * min(1.0, inputs.together / count)
    return moved_inside(inputs) / count / rate


def bottleneck(times: Times, samples: float, calls: Sequence[RecordedCall]) -> str:
    """Return in words what takes most of a step, and what would help."""
    step = times.step
    if step is None:
        return "unknown without the network's rates"
    parts = {
        "computing": times.compute,
        "shared memory": times.inside,
        "waiting": times.waiting,
        "bandwidth": times.bandwidth or 0.0,
        "latency": times.latency or 0.0,
        "engine": times.engine,
    }
    name = max(parts, key=lambda part: parts[part])
    share = f"{100 * parts[name] / step:.0f} % of a step"
    summed = sum(recorded.size for recorded in calls)
    match name:
        case "computing" if samples < 1:
            return f"too few samples: the batch has less than one for each rank, and {share} is computing"
        case "computing":
            return f"computing: {share}; more ranks shorten it as long as their shares of the batch do"
        case "shared memory":
            return (
                f"sums in the node's memory: {share}; fewer ranks with more threads each have less to add up"
            )
        case "waiting":
            return f"ranks that wait for each other: {share}; something keeps some of them from computing"
        case "bandwidth":
            return (
                f"the network's bandwidth: {share} is sending sums of {summed / 1e6:.1f} MB; "
                "with larger batches (batch_size) fewer are sent"
            )
        case "latency":
            return f"the network's latency: {share} is {len(calls)} calls whose messages wait for each other"
        case _:
            return f"the engine itself: {share} is its copies and its pauses between polls of the network"
