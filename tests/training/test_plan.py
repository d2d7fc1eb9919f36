"""``tenon plan``: predictions agree with the traffic and memory of real ranks; unknowns are stated."""

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tenon.cli import main
from tenon.distributed.communication.calls import Call
from tenon.distributed.communication.communicator import Communicator
from tenon.errors import ConfigError, UnsupportedError
from tenon.testing.suites.communicator import find_mpirun
from tenon.training.command import resolve
from tenon.training.plan import measure, predict
from tenon.training.plan.quantities import read_rate, read_time
from tenon.training.plan.recorded_calls import RecordedCall
from tenon_mpi.communicator import MpiCommunicator

PROGRAMS = Path(__file__).parent / "programs"


SMALL = RecordedCall(Call("all_reduce", "sum", (2,), "float64", "weights"), False, False)
GRADIENTS = RecordedCall(Call("all_reduce", "mean", (1 << 20,), "float32", "gradients"), True, True)


@pytest.fixture
def wide(tmp_path, monkeypatch):
    """A folder with a model of 1.1 million parameters, from which commands are run."""
    for name in ("wide.py", "wide.toml"):
        shutil.copy(PROGRAMS / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("wide", None)


def train_counting(folder, ranks, nodes, *settings):
    """Train on real ranks; return what each counted in its last step."""
    place = folder / "plugin"  # apart, for what is planned in ``folder`` is not counted
    info = place / "counting-0.1.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: counting\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[tenon]\ncounting = counting\n")
    shutil.copy(PROGRAMS / "counting.py", place)
    command = [find_mpirun(), "-n", str(ranks), sys.executable, "-m", "tenon.cli", "train", "wide.toml"]
    variables = {"TENON_MPI_NODES": str(nodes), "COUNTED": str(folder), "PYTHONPATH": str(place)}
    done = subprocess.run(
        [*command, *(part for text in settings for part in ("--set", text))],
        cwd=folder,
        env={**measure.process_environment(), "TENON_NUM_THREADS": "1", **variables},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"counted-{rank}.json").read_text()) for rank in range(ranks)]


def plan(*arguments):
    done = CliRunner().invoke(main, ["plan", *arguments, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize(
    ("ranks", "nodes"),
    [(2, 2), (4, 2), pytest.param(4, 4, marks=pytest.mark.manual)],
)
def test_bytes_are_those_that_real_ranks_count(wide, ranks, nodes):
    config, _ = resolve("wide.toml", ("model_options.width=256",), None)
    inputs = predict.Inputs(
        predict.Cluster(ranks, ranks // nodes, 2, 1),
        measure.rehearse(config, ranks, 1, 1, nodes),
        MpiCommunicator,
        1,
    )
    traffic = predict.between_nodes(inputs)

    counted = train_counting(wide, ranks, nodes, "model_options.width=256")

    calls = inputs.rehearsed.calls
    for one in counted:
        assert one["calls"] == [
            [recorded.call.kind, list(recorded.call.shape), recorded.call.dtype] for recorded in calls
        ]
        assert one["compared"] == len(calls)
    comparing = nodes * len(calls) * 16 * (nodes.bit_length() - 1)
    assert traffic.sent * nodes == pytest.approx(sum(one["sent"] for one in counted) + comparing, abs=0.01)
    assert traffic.sent > 4 * 84_000


@pytest.mark.slow
@pytest.mark.mpi
def test_memory_is_within_fifteen_percent_of_what_real_ranks_need(wide):
    # The engine compiles its sums after the first 32.
    settings = ("epochs=4", "log.tensorboard=false")
    options = ("-n", "2", "--ranks-per-node", "2", "--compute-ms", "5")
    planned = plan(*options, "wide.toml")
    predicted = planned["memory"]

    counted = train_counting(wide, 2, 1, *settings)

    for one in counted:
        assert predicted["peak_training"] == pytest.approx(one["peak"], rel=0.15)
    weights = 4 * (64 * 1024 + 1024 + 1024 * 1024 + 1024 + 10 * 1024 + 10)
    assert predicted["parameters_and_buffers"] == predicted["gradients"] == weights
    assert predicted["optimizer_state"] == pytest.approx(2 * weights, rel=0.001)
    assert predicted["gradient_buckets"] == pytest.approx(weights, rel=0.001)
    assert planned["bytes"]["sent_per_rank"] == 0 and planned["buckets"] == 1
    assert [call["bytes"] for call in planned["calls"]] == [
        math.prod(s) * np.dtype(d).itemsize for _, s, d in one["calls"]
    ]


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["digit"], "Did you mean 'digits'?"),
        (["digits", "--set", "optimzer.lr=1"], "unknown key 'optimzer'. Did you mean 'optimizer'?"),
        (["digits", "--set", "batch_size=0"], "batch_size = 0: "),
        (["digits", "--set", "epochs=0"], "epochs = 0: the configuration trains no step"),
        (
            ["digits", "--network", "2Gbit"],
            "--network alone does not determine how long a message takes. Add --latency",
        ),
        (
            ["digits", "--latency", "50us"],
            "--latency alone does not determine how fast bytes are sent. Add --network",
        ),
        (["digits", "--network", "fast", "--latency", "1us"], "--network 'fast' is not a bandwidth"),
        (["digits", "--network", "2Gbit", "--latency", "50"], "--latency '50' is not a time"),
        (
            ["digits", "--ranks-per-node", "3"],
            "4 ranks do not fill nodes of 3. Give --ranks-per-node a number",
        ),
        (["digits", "--mpirun", "mpirun", "--network", "1Gbit"], "--mpirun measures the network"),
    ],
)
def test_what_cannot_be_planned_is_refused_in_one_line(arguments, answer):
    done = CliRunner().invoke(main, ["plan", "-n", "4", *arguments])

    assert done.exit_code == 2
    assert answer in done.output and len(done.output.splitlines()) == 1


def test_rates_and_times_are_read_as_networks_state_them():
    assert read_rate("2Gbit") == read_rate("0.25 GB/s") == read_rate("2000 Mbit/s") == 2.5e8
    assert read_time("50us") == pytest.approx(5e-5) and read_time("0.1 ms") == pytest.approx(1e-4)
    for wrong in ("2Gb", "-1Gbit", "0Gbit", "1.2.3Gbit", "Gbit"):
        with pytest.raises(ConfigError, match="is not a bandwidth"):
            read_rate(wrong)


def inputs_of(ranks, per_node, calls, network=None, seconds=(0.01,)):
    """The findings of a rehearsal of ``calls``, on nodes with as many cores as ranks."""
    rehearsed = measure.Rehearsed(1, 1, 1, calls, {}, (seconds,), 0.004, 1e10)
    cluster = predict.Cluster(ranks, per_node, per_node, 1)
    return predict.Inputs(cluster, rehearsed, MpiCommunicator, per_node, network=network)


def test_a_step_between_two_nodes_takes_its_bytes_and_its_rounds():
    network = predict.Network(1e8, 1e-3, "given")
    found = predict.times(inputs_of(2, 1, (SMALL, GRADIENTS), network))

    # Each rank sends its 4 MiB in two pieces, 16 bytes, and 16 bytes to compare each call.
    assert found.bandwidth == pytest.approx((4 * 2**20 + 16 + 2 * 16) / 1e8)
    assert found.latency == pytest.approx(5e-3)
    assert found.inside == 0 and found.compute == 0.01
    assert found.step == pytest.approx(0.01 + found.bandwidth + found.latency + found.engine)


def test_ranks_of_a_node_share_its_link_and_each_sends_its_slice():
    alone = predict.between_nodes(inputs_of(4, 1, (GRADIENTS,)))
    together = predict.between_nodes(inputs_of(8, 2, (GRADIENTS,)))

    assert together.sent == alone.sent == pytest.approx(2 * 3 / 4 * 4 * 2**20 + 2 * 16)
    assert predict.between_nodes(inputs_of(8, 8, (GRADIENTS,))).sent == 0


def test_more_ranks_than_cores_compute_in_turns():
    inputs = inputs_of(4, 4, (SMALL,))
    inputs.cluster = predict.Cluster(4, 4, 2, 1)

    assert predict.times(inputs).compute == pytest.approx(0.02)


def test_what_steps_of_all_ranks_take_longer_is_waiting_for_the_slower_ones():
    inputs = inputs_of(2, 2, (SMALL,), seconds=(0.01,))
    inputs.replayed = measure.Replayed(2, (0.002,), 0)
    assert predict.times(inputs).waiting == 0 and predict.times(inputs).step == pytest.approx(0.012)
    inputs.tried = (0.02, 0.015, 0.9)
    found = predict.times(inputs)
    assert found.waiting == pytest.approx(0.008) and found.step == pytest.approx(0.02)
    inputs.tried = (0.001,)
    assert predict.times(inputs).waiting == 0


def test_on_a_busy_machine_processor_time_and_the_quickest_tenth_can_count():
    inputs = inputs_of(2, 2, (SMALL,), seconds=(0.01, 0.08, 0.09))
    inputs.replayed = measure.Replayed(2, tuple(0.001 * n for n in range(1, 21)), 0)
    busy = predict.times(inputs)
    inputs.idle = True
    idle = predict.times(inputs)

    assert (busy.compute, busy.inside) == (0.08, pytest.approx(0.0105))
    assert (idle.compute, idle.inside) == (0.004, 0.003)


def test_two_measured_sums_give_back_the_network_that_they_were_made_on():
    true = predict.Network(2.5e8, 8e-5, "true")

    def seconds(elements, dtype, beside):
        call = Call("all_reduce", "sum", (elements,), dtype, None)
        cost = MpiCommunicator.traffic(call, 3, 1, beside=beside)
        return (
            cost.sent / true.bytes_per_second + cost.rounds * true.latency + cost.paused + cost.moved / 1e10
        )

    link = measure.Link(3, 3, (seconds(2, "float64", False),), (seconds(2 << 20, "float32", True),))
    found = predict.fit(link, inputs_of(3, 1, ()), "measured", True)

    assert found.bytes_per_second == pytest.approx(true.bytes_per_second)
    assert found.latency == pytest.approx(true.latency)


@pytest.mark.parametrize("number", ["nan", "1e400"])
def test_computing_times_that_are_not_finite_are_refused(number):
    done = CliRunner().invoke(main, ["plan", "digits", "--compute-ms", number])

    assert done.exit_code == 2 and f"'--compute-ms': {float(number)} is not a finite number" in done.output


def test_sums_that_no_network_explains_are_refused():
    with pytest.raises(ConfigError, match="give no bandwidth and latency"):
        predict.fit(measure.Link(2, 2, (1.0,), (0.01,)), inputs_of(2, 1, ()), "measured", True)


def test_without_the_networks_rates_the_step_is_not_known():
    found = predict.times(inputs_of(2, 1, (GRADIENTS,)))

    assert found.step is None and found.compute == 0.01
    assert predict.bottleneck(found, 32, (GRADIENTS,)) == "unknown without the network's rates"


def test_an_engine_that_does_not_say_what_it_sends_is_named():
    inputs = inputs_of(2, 1, (GRADIENTS,))
    inputs.engine = Communicator

    with pytest.raises(UnsupportedError, match="'communicator' cannot predict its traffic"):
        predict.times(inputs)


@pytest.mark.mpi
@pytest.mark.manual
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_step_takes_as_long_as_predicted_within_a_factor_of_three(wide, ranks):
    """The median of three plans and runs in turn, as other programs disturb both; processor time likewise."""
    options = ("-n", str(ranks), "--ranks-per-node", str(ranks), "--set", "batch_size=256")
    ratios, worked = [], []
    for _ in range(3):
        predicted = plan(*options, "wide.toml")["seconds"]
        counted = train_counting(wide, ranks, 1, "batch_size=256", "epochs=8")
        ratios.append(counted[0]["seconds"] / predicted["step"])
        worked.append(counted[0]["processor"] / predicted["processor"])
        print(f"{ranks} ranks: {1e3 * predicted['step']:.1f} ms predicted, {ratios[-1]:.2f} of it taken")

    assert 1 / 3 < sorted(ratios)[1] < 3
    assert 0.7 < sorted(worked)[1] < 3  # ranks count waiting for each other, a plan does not


@pytest.mark.mpi
@pytest.mark.manual
def test_where_mpi_cannot_be_started_sums_count_as_copies(wide, monkeypatch):
    (wide / "mpi4py").mkdir()
    (wide / "mpi4py" / "__init__.py").write_text("raise ImportError('there is no MPI here')")
    monkeypatch.setenv("PYTHONPATH", str(wide))

    options = ("-n", "2", "--ranks-per-node", "2", "--compute-ms", "5", "--set", "model_options.width=64")
    found = plan(*options, "wide.toml")

    said = next(text for text in found["assumptions"] if text.startswith("Shared memory: not timed"))
    assert "there is no MPI here" in said and "as fast as copies here" in said
    assert 0 < found["seconds"]["shared_memory"] < 0.01 and found["seconds"]["step"] > 0.005


@pytest.mark.mpi
@pytest.mark.manual
def test_an_unknown_network_counts_as_messages_here_and_says_so(wide):
    options = ("-n", "4", "--ranks-per-node", "2", "--compute-ms", "5", "--set", "batch_size=6400")
    found = plan(*options, "wide.toml")

    assert found["nodes"] == 2 and found["network"]["lower_bound"] is True
    assert any("a step takes at least as long as shown" in text for text in found["assumptions"])
    assert found["seconds"]["step"] > 0.005 and found["speedup"] is None
    assert found["batch_size"] == 640 and any("so a step has these" in text for text in found["assumptions"])
