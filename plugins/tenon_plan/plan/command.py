"""``tenon plan``: predict a run on many ranks from a few steps of one of them."""

from __future__ import annotations

import json
import math

import click
from click.core import ParameterSource

from tenon.errors import ConfigError, LaunchError, TenonError
from tenon.extend import Communicator, Config, engine, process_environment, resolve, run_parts
from tenon_plan.plan import divided, graph_plan, measure, meshes, predict, report
from tenon_plan.plan.quantities import duration, read_rate, read_size, read_time
from tenon_plan.plan.quantities import size as bytes_of


class FiniteRange(click.FloatRange):
    """A range of floats without infinity, and without nan, which every range of click's contains."""

    def convert(self, value: float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number; BadParameter if it is not finite or out of range."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{number!r} is not a finite number.", param, ctx)
        return number


@click.command()
@click.argument("what", metavar="RECIPE | FILE.toml | BUNDLE")
@click.option("-n", "ranks", type=click.IntRange(1), default=1, metavar="RANKS", help="Ranks to plan for; 1.")
@click.option(
    "--ranks-per-node",
    type=click.IntRange(1),
    metavar="K",
    help="Ranks on each node; by default one for each of its cores.",
)
@click.option(
    "--cores-per-node", type=click.IntRange(1), metavar="C", help="Cores of each node; by default this one's."
)
@click.option("--network", metavar="RATE", help="Bandwidth of a node, e.g. 10Gbit; with --latency.")
@click.option(
    "--latency", metavar="TIME", help="From one node to another, e.g. 50us: half of what ping shows."
)
@click.option(
    "--mpirun",
    "launcher",
    metavar="COMMAND",
    help='Measure the network with it, e.g. "mpirun -n 2 -ppn 1 -hosts a,b".',
)
@click.option("--compute-ms", type=FiniteRange(0, min_open=True), help="Computing time of a step, if known.")
@click.option(
    "--idle",
    is_flag=True,
    help="Discount other programs that keep this machine busy: count processor time.",
)
@click.option(
    "--meshes", "every_mesh", is_flag=True, help="Try each division of the model, and name the best one."
)
@click.option("--memory", metavar="SIZE", help="What a rank may take, e.g. 4GiB; with a divided model.")
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override one setting, as in tenon train."
)
@click.option(
    "--size",
    "sizes",
    multiple=True,
    metavar="NAME=N",
    help="A size of a graph that may change: batch=64.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plan(
    what: str,
    ranks: int,
    ranks_per_node: int | None,
    cores_per_node: int | None,
    network: str | None,
    latency: str | None,
    launcher: str | None,
    compute_ms: float | None,
    idle: bool,
    every_mesh: bool,
    memory: str | None,
    overrides: tuple[str, ...],
    sizes: tuple[str, ...],
    as_json: bool,
) -> None:
    """Predict bytes, memory and time of a step on RANKS ranks, without training on them.

    One rank's steps run here, with the others simulated; rates are measured, or given by you. If ranks have
    parts of the model ([parallel]), all of them run some steps here; --meshes compares the ways to divide it.
    Of the folder of a bundle, or the file of an exported program, one run of its graph is planned.
    """
    try:
        if graph_plan.is_graph(what):
            _refuse_options(
                ("what", "sizes", "as_json"), "applies to training runs only, and this is a graph"
            )
            _show(graph_plan.plan_file(what, sizes), as_json)
            return
        if sizes:
            raise ConfigError("--size applies to bundles only. Set the batch by --set batch_size=64.")
        if engine.launched() is not None:
            raise ConfigError(
                "tenon plan starts the processes that it needs itself. Run it without a launcher."
            )
        config, _ = run_parts.resolve(what, overrides, None)
        every_mesh |= config.parallel.auto
        if every_mesh or config.parallel.divides:
            _refuse_options(
                _FOR_DIVIDED, "does not apply where ranks have parts of the model: all are started"
            )
            limit = None if memory is None else read_size(memory)
            divided.plan(config, ranks, launcher, limit, every_mesh, as_json)
            return
        if memory is not None:
            raise ConfigError("--memory applies to divided models; add --meshes to compare divisions.")
        described = _described_network(network, latency, launcher)
        cluster = _cluster(ranks, ranks_per_node, cores_per_node)
        inputs = _measure(config, cluster, described, launcher, compute_ms, idle)
        prediction = report.Plan.of(config, inputs)
    except TenonError as error:
        run_parts.refuse(error)
    _show(prediction, as_json)


def _show(prediction: report.Plan | graph_plan.GraphPlan, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(prediction.plain(), indent=2))
    elif isinstance(prediction, graph_plan.GraphPlan):
        report.show_graph(prediction)
    else:
        report.show(prediction)


#: The options that a plan of a divided model takes.
_FOR_DIVIDED = ("what", "ranks", "launcher", "every_mesh", "memory", "overrides", "as_json")


def _refuse_options(allowed: tuple[str, ...], reason: str) -> None:
    """Raise ConfigError for options besides those called ``allowed``."""
    context = click.get_current_context()
    given = [
        option
        for option in context.command.params
        if option.name not in allowed
        and context.get_parameter_source(str(option.name)) is ParameterSource.COMMANDLINE
    ]
    if given:
        raise ConfigError(f"{given[0].opts[-1]} {reason}. Leave it out, or plan the recipe.")


def _described_network(
    network: str | None, latency: str | None, launcher: str | None
) -> predict.Network | None:
    """Return the network that the options describe; None if they describe none."""
    if launcher is not None and (network is not None or latency is not None):
        raise ConfigError("--mpirun measures the network; leave out --network and --latency, or --mpirun.")
    if network is not None and latency is None:
        raise ConfigError(
            "--network alone does not determine how long a message takes. Add --latency, e.g. 50us."
        )
    if latency is not None and network is None:
        raise ConfigError(
            "--latency alone does not determine how fast bytes are sent. Add --network, e.g. 10Gbit."
        )
    if network is None or latency is None:
        return None
    source = f"as given: {network}, {latency}"
    return predict.Network(read_rate(network), read_time(latency), source)


def _cluster(ranks: int, ranks_per_node: int | None, cores_per_node: int | None) -> predict.Cluster:
    cores = predict.usable_cores() if cores_per_node is None else cores_per_node
    per_node = min(ranks, cores if ranks_per_node is None else ranks_per_node)
    if ranks % per_node:
        low = ranks - ranks % per_node
        raise ConfigError(
            f"{ranks} ranks do not fill nodes of {per_node}. Give --ranks-per-node a number that divides"
            f" {ranks}, or plan for {low} or {low + per_node} ranks."
        )
    environment = process_environment()
    requested = environment.get("TENON_NUM_THREADS") or environment.get("OMP_NUM_THREADS") or ""
    threads = int(requested) if requested.isdecimal() and int(requested) else max(1, cores // per_node)
    return predict.Cluster(ranks, per_node, cores, threads)


def _measure(
    config: run_parts.RunConfig,
    cluster: predict.Cluster,
    described: predict.Network | None,
    launcher: str | None,
    compute_ms: float | None,
    idle: bool,
) -> predict.Inputs:
    """Measure all inputs of the prediction, and record in ``remarks`` where they come from."""
    cores = predict.usable_cores()
    threads = min(cluster.threads, cores)
    concurrent = max(1, min(cluster.ranks_per_node, cores // threads))
    rehearsed = measure.rehearse(config, cluster.ranks, concurrent, threads, cluster.nodes, graph=True)
    inputs = predict.Inputs(cluster, rehearsed, _engine(), concurrent, idle)
    _describe_computing(inputs, threads, cores, compute_ms)
    if rehearsed.graph_remark:
        inputs.remarks.append(f"Graph: {rehearsed.graph_remark}")
    if compute_ms is not None:
        inputs.compute = compute_ms / 1e3
    elif cluster.ranks > 1:
        inputs.alone = measure.rehearse(config, 1, 1, threads)
    if cluster.ranks_per_node > 1:
        _replay(inputs, cores)
    here = cluster.nodes == 1 and cluster.cores == cores and 1 < cluster.ranks <= measure.MOST_REPLAYED
    if here and inputs.replayed is not None and compute_ms is None and not idle:
        _try(inputs, config)
    if cluster.nodes > 1:
        inputs.network = _network(inputs, described, launcher)
    elif described is not None or launcher is not None:
        inputs.remarks.append("All ranks are on one node: no network is used.")
    return inputs


def _engine() -> type[Communicator]:
    name = Config.from_environment().communicator or engine.DEFAULT
    communicator: type[Communicator] = resolve("communicators", name)
    return communicator


def _describe_computing(inputs: predict.Inputs, threads: int, cores: int, compute_ms: float | None) -> None:
    cluster, rehearsed = inputs.cluster, inputs.rehearsed
    if compute_ms is not None:
        inputs.remarks.append(f"Computing: {compute_ms:g} ms, as given.")
        return
    seconds = sorted(second for steps in rehearsed.seconds for second in steps)
    concurrency = f", {inputs.together} processes at once" if inputs.together > 1 else ""
    low, high = seconds[len(seconds) // 10], seconds[-1 - len(seconds) // 10]
    inputs.remarks.append(
        f"Computing: measured here, median of {len(rehearsed.seconds[0])} steps of one rank's share"
        f" ({threads} thread{'s' if threads > 1 else ''}{concurrency}; 8 of 10 took {duration(low)} to"
        f" {duration(high)})."
    )
    worked = f"Processors worked {duration(rehearsed.processor)} for a step"
    if inputs.idle:
        inputs.remarks.append(
            f"{worked}, which counts here (--idle), and of all other timings the quickest tenth."
        )
    elif predict.computing(rehearsed, inputs) > 1.3 * rehearsed.processor / threads:
        inputs.remarks.append(
            f"{worked}: the rest is waiting, for data, between threads, or for other programs that keep this "
            "machine busy (--idle leaves it out)."
        )
    if cluster.threads > cores:
        inputs.remarks.append(f"A rank would have {cluster.threads} threads; it was measured with {cores}.")
    if cluster.sharing > 1:
        inputs.remarks.append(
            f"{cluster.ranks_per_node} ranks share {cluster.cores} cores: computing counts"
            f" {cluster.sharing:.3g} times."
        )
    elif inputs.together < cluster.ranks_per_node:
        inputs.remarks.append(
            f"A node's {cluster.ranks_per_node} ranks are taken to compute as fast side by side as"
            f" {inputs.together} here."
        )


def _replay(inputs: predict.Inputs, cores: int) -> None:
    """Time the calls on the ranks of a node, if MPI can be started here."""
    cluster = inputs.cluster
    count = cluster.ranks_per_node
    most = measure.MOST_REPLAYED if cluster.cores == cores else cores
    try:
        inputs.replayed = measure.replay(inputs.rehearsed, max(2, min(count, most)))
    except LaunchError as error:
        rate = inputs.rehearsed.copied_per_second
        inputs.remarks.append(
            f"Shared memory: not timed ({error}). Taken to move {bytes_of(predict.moved_inside(inputs))} a"
            f" step as fast as copies here, {bytes_of(rate)} a second and process; waiting for each other is"
            " left out."
        )
        return
    ranks = inputs.replayed.ranks
    scaled = "" if ranks >= count else f", times {count}/{ranks}, as if they shared the speed of one memory"
    inputs.remarks.append(
        f"Shared memory: the calls of a step timed on {ranks} ranks here, median of "
        f"{len(inputs.replayed.seconds)}{scaled}. Their data were in cache, more than in training."
    )


def _try(inputs: predict.Inputs, config: run_parts.RunConfig) -> None:
    """Time steps of all ranks, which are started here."""
    sizes = {"data": inputs.cluster.ranks, "shard": 1, "tensor": 1, "pipeline": 1}
    tried = meshes.attempt(config, sizes, inputs.cluster.ranks, run_parts.find_launcher())
    if tried.problem:
        inputs.remarks.append(f"Waiting for slower ranks is left out: {tried.problem}")
        return
    inputs.tried = tried.result["seconds"]
    inputs.remarks.append(
        f"Waiting: {inputs.cluster.ranks} ranks trained {len(inputs.tried)} steps here, median"
        f" {duration(tried.seconds)}; what that is more than computing and sums is waiting for slower ones."
    )


def _network(
    inputs: predict.Inputs, described: predict.Network | None, launcher: str | None
) -> predict.Network | None:
    """Return the network as described or as measured; None if it is unknown."""
    if described is not None:
        inputs.remarks.append(
            f"Network: {described.source}, each way, shared by the ranks of a node, all of it for these"
            " bytes."
        )
        return described
    if launcher is not None:
        link = measure.network(launcher)
        fitted = predict.fit(link, inputs, f"measured between {link.nodes} nodes", True)
        inputs.remarks.append(
            f"Network: {fitted.source} with {launcher!r}: {bytes_of(fitted.bytes_per_second)} a second, "
            f"{duration(fitted.latency)} a message."
        )
        return fitted
    advice = "Give --network and --latency, or let --mpirun measure between two nodes."
    try:
        fitted = predict.fit(measure.this_machine(), inputs, "messages inside this machine", False)
    except (LaunchError, ConfigError) as error:
        inputs.remarks.append(f"Network: not known, and messages here cannot replace it ({error}). {advice}")
        return None
    inputs.remarks.append(
        "Network: not known. Counted as fast as messages between two processes here,"
        f" {bytes_of(fitted.bytes_per_second)} a second, {duration(fitted.latency)} a message: a step takes"
        f" at least as long as shown. {advice}"
    )
    return fitted
