"""The benches run, at sizes that take no time. What they measure is not looked at here."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

import tenon
from tenon.testing.suites.communicator import find_mpirun

HERE = pathlib.Path(__file__).parent


def run(script, *options, tmp_path):
    """Run a bench as its user would; returns what it wrote as JSON."""
    file = tmp_path / "found.json"
    done = subprocess.run(
        [sys.executable, HERE / script, *options, "--json", file],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(file.read_text())


@pytest.mark.slow
@pytest.mark.oracle
def test_every_program_trains_alike_under_tenon_and_torch_and_is_timed(tmp_path):
    pytest.importorskip("torch")

    found = run(
        "eager.py", "--tiny", "--rounds", "1", "--block", "0.001", "--threads", "1", tmp_path=tmp_path
    )

    assert [r["program"] for r in found["results"]] == ["note", "mlp", "cnn", "gpt", "lstm"]
    assert all(r["ratio"]["min"] > 0 and r["ratio"]["median"] > 0 for r in found["results"])


@pytest.mark.slow
@pytest.mark.oracle
def test_traces_are_timed_against_modules_in_both_libraries(tmp_path):
    pytest.importorskip("torch")

    found = run("traces.py", "--rounds", "1", "--number", "1", tmp_path=tmp_path)

    assert [(r["model"], r["train"]) for r in found["results"]] == [
        (model, train) for model in ("linear", "mlp", "encoder layer", "cnn") for train in (False, True)
    ]
    assert all(time > 0 for r in found["results"] for time in r["us"])


@pytest.mark.slow
@pytest.mark.oracle
def test_tracing_is_timed(tmp_path):
    pytest.importorskip("torch")

    found = run("tracing.py", "--rounds", "0", "--depth", "0.1", "--alone", tmp_path=tmp_path)

    assert {r["model"] for r in found["results"]} == {"resnet of 8 blocks", "encoder of 6 layers"}
    assert len(found["results"]) == 14 and all(r["ms"] > 0 for r in found["results"])


@pytest.mark.slow
@pytest.mark.mpi
def test_model_beyond_a_memory_limit_is_timed_beside_the_whole(tmp_path):
    find_mpirun()
    sizes = (
        "--width",
        "256",
        "--layers",
        "2",
        "--batch",
        "8",
        "--rounds",
        "1",
        "--times",
        "0.0005",
        "-n",
        "2",
    )

    found = run("sharded_memory.py", *sizes, tmp_path=tmp_path)

    assert found["whole"]["needed"] == found["sharded"]["needed"] == 4 * 4 * 2 * (256 * 256 + 256)
    assert found["share"] > 0


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.oracle
def test_sharded_training_is_timed_beside_torch(tmp_path):
    pytest.importorskip("torch")
    find_mpirun()

    found = run(
        "sharded.py", "--width", "32", "--layers", "2", "--batch", "8", "--rounds", "1", tmp_path=tmp_path
    )

    ways = ("local", "replicated", "gathered once", "sharded", "tensor", "pipeline")
    assert set(found["ways"]) == {f"{library} {way}" for library in ("tenon", "torch") for way in ways}
    parameters = 2 * (32 * 32 + 32)
    assert found["sent"]["tenon sharded"] == pytest.approx(3 * 4 * parameters / 2, rel=0.02)


@pytest.mark.slow
@pytest.mark.oracle
def test_ops_on_dtensors_are_timed(tmp_path):
    pytest.importorskip("torch")

    found = run("dtensor.py", "--rounds", "0", "--number", "2", tmp_path=tmp_path)

    assert list(found) == ["add", "matmul", "sum", "view", "step of an MLP"]
    assert all(time > 0 for row in found.values() for time in row.values())


@pytest.mark.oracle
@pytest.mark.manual
def test_every_row_of_the_bench_of_the_cpu_is_measured_or_says_why_not(tmp_path):
    pytest.importorskip("torch")

    found = run(
        "cpu.py",
        "--tiny",
        "--eager",
        "--rounds",
        "1",
        "--block",
        "0.001",
        "--threads",
        "1",
        tmp_path=tmp_path,
    )

    rows = {r["row"]: r for r in found["results"]}
    assert {"a", "b", "c", "d", "e", "f", "g-e-32", "h", "b16", "x-add", "x-chain"} <= set(rows)
    for name, row in rows.items():
        ours = row["ways"]["tenon eager"]
        assert row["eager"]["min"] > 0 if "not_built" not in ours else row["eager"] is None, (name, ours)
        assert not any("failed" in way or "differ" in way for way in row["ways"].values()), (
            name,
            row["ways"],
        )
        assert row["floor"] is None or row["floor"]["copy_s"] > 0


@pytest.mark.oracle
@pytest.mark.manual
def test_a_compiled_row_is_compared_with_all_of_pytorchs_ways(tmp_path):
    pytest.importorskip("torch")

    found = run(
        *("cpu.py", "--only", "g-b-1", "--tiny", "--rounds", "1", "--block", "0.001", "--threads", "1"),
        tmp_path=tmp_path,
    )

    ways = found["results"][0]["ways"]
    assert set(ways) == {
        "tenon eager",
        "torch eager",
        "tenon compiled",
        "torch compiled",
        "torch compiled frozen",
    }
    assert "losses" in ways["torch compiled"]
    assert ("losses" in ways["tenon compiled"]) == hasattr(tenon, "compile")


def test_a_row_that_does_not_exist_is_refused_by_name():
    done = subprocess.run([sys.executable, HERE / "cpu.py", "--only", "z"], capture_output=True, text=True)

    assert done.returncode == 2
    assert "no row begins with z; there are a, b, c" in done.stderr


@pytest.mark.oracle
@pytest.mark.manual
def test_the_memory_of_both_shapes_is_measured(tmp_path):
    pytest.importorskip("torch")

    found = run("memory.py", "--tiny", "--steps", "1", "--threads", "1", tmp_path=tmp_path)

    assert [r["shape"] for r in found["results"]] == ["activations", "weights", "b compiled"]
    assert all(r["tenon"]["base"] > 1 << 20 for r in found["results"])


@pytest.mark.slow
@pytest.mark.oracle
def test_the_cost_of_a_module_is_measured():
    pytest.importorskip("torch")

    done = subprocess.run(
        [sys.executable, HERE / "modules.py", "--number", "10"], capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
    assert "read a parameter" in done.stdout


@pytest.mark.slow
@pytest.mark.oracle
def test_the_overhead_of_ops_is_measured(tmp_path):
    pytest.importorskip("torch")

    found = run("op_overhead.py", "--number", "5", "--rounds", "1", tmp_path=tmp_path)

    assert {"add", "matmul, taped", "grad, twice"} <= {r["op"] for r in found["results"]}
    assert all(r["ratio"] > 0 for r in found["results"])


@pytest.mark.slow
def test_the_time_of_an_import_is_measured_and_what_it_loads_is_seen(tmp_path):
    found = run("import_time.py", "--rounds", "1", tmp_path=tmp_path)

    assert "tenon" in found["seconds"]
    assert found["loaded"] == []


@pytest.mark.slow
@pytest.mark.mpi
def test_all_reduce_is_timed_in_every_way(tmp_path):
    find_mpirun()
    found = run("collectives.py", "--sizes", "4,128", "--rounds", "1", tmp_path=tmp_path)

    assert [row["bytes"] for row in found["results"]] == [4096, 131072]
    for row in found["results"]:
        assert {"MPI", "window", "private", "messages", "check", "copy"} <= set(row["ways"])


@pytest.mark.slow
@pytest.mark.mpi
def test_identity_of_every_collective_is_timed_with_and_without(tmp_path):
    find_mpirun()
    found = run("identity.py", "--rounds", "1", tmp_path=tmp_path)

    assert len(found["results"]) == 22
    assert all(row["microseconds"]["with"]["min"] > 0 for row in found["results"])


@pytest.mark.mpi
@pytest.mark.oracle
@pytest.mark.manual
def test_data_parallel_steps_are_timed_and_lose_alike(tmp_path):
    pytest.importorskip("torch")
    find_mpirun()
    found = run(
        *("data_parallel.py", "--models", "mlp:4,cnn:2", "--rounds", "1", "--repeats", "1", "--parts"),
        tmp_path=tmp_path,
    )

    assert [row["model"] for row in found["results"]] == ["mlp:4", "cnn:2"]
    for row in found["results"]:
        for name in ("tenon", "tenon compiled", "torch gloo"):
            assert {f"{name} alone", f"{name} local", f"{name} parallel"} <= set(row["ways"])
        for name in ("tenon", "tenon compiled"):
            assert {f"{name} bucketed", f"{name} unsummed"} <= set(row["ways"])


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("options", [(), ("--sharded", "--clip")], ids=["replicated", "sharded"])
def test_the_price_of_equal_bits_is_measured(tmp_path, options):
    find_mpirun()
    found = run(
        *("deterministic.py", "-n", "2", "--batch", "8", "--rounds", "1", "--repeats", "1", *options),
        tmp_path=tmp_path,
    )

    assert found["ranks"] == 2
    assert all(min(seconds) > 0 for program in found["programs"].values() for seconds in program.values())


@pytest.mark.slow
@pytest.mark.oracle
def test_operations_are_timed_forward_and_backward(tmp_path):
    pytest.importorskip("torch")

    found = run("ops.py", "nn.RNNCell", "rand_like", "optim.SGD", "--seconds", "0", tmp_path=tmp_path)

    assert found["failed"] == []
    assert all(r["ratio"] > 0 for r in found["results"])
    parts = {(r["op"], r["tier"], r["part"]) for r in found["results"]}
    assert {("nn.RNNCell", 2, "forward"), ("nn.RNNCell", 2, "backward"), ("rand_like", 2, "forward")} < parts
    assert ("optim.SGD", 1, "forward") in parts


@pytest.mark.slow
def test_whatever_has_a_reason_to_be_slow_or_a_name_that_users_know_is_timed_or_needs_no_timing():
    read = "import ops; d = ops.read(); timed = ' '.join(g['names'] for g in d['timed']).split()"
    listed = f"{read}; print(sorted(set(ops.reasons()) - set(timed)), ops.unlisted())"

    done = subprocess.run([sys.executable, "-c", listed], cwd=HERE, capture_output=True, text=True)

    assert done.stdout.strip() == "[] []", done.stdout + done.stderr


def test_a_program_that_does_not_exist_is_refused_by_name():
    done = subprocess.run([sys.executable, HERE / "eager.py", "mpl"], capture_output=True, text=True)

    assert done.returncode == 2
    assert "no program called mpl; there are note, mlp, cnn, gpt, lstm" in done.stderr


@pytest.mark.slow
def test_the_steps_of_a_program_are_timed(tmp_path):
    found = run("steps.py", "b", "--tiny", "--runs", "2", "--threads", "1", tmp_path=tmp_path)

    names = [name for name, _, _ in found["b"]["steps"]]
    assert any(name.startswith("matmul float32[") for name in names), names
    assert sum(ms for _, _, ms in found["b"]["steps"]) > 0


@pytest.mark.slow
def test_the_functions_of_an_eager_row_are_sampled(tmp_path):
    found = run("samples.py", "b", "--tiny", "--seconds", "0.2", tmp_path=tmp_path)

    assert sum(found["b"]["parts"].values()) == pytest.approx(1.0)
    assert "dispatch, tape, sweep" in found["b"]["parts"]


@pytest.mark.oracle
@pytest.mark.manual
def test_the_cost_of_profiles_is_measured_against_torchs(tmp_path):
    pytest.importorskip("torch")

    found = run("profiler.py", "--count", "100", "--rounds", "1", tmp_path=tmp_path)

    assert set(found) == {"tenon", "torch"}
    assert all(
        set(each["added_us"]) == {"nothing", "shapes", "shapes and memory", "stacks"}
        for each in found.values()
    )


@pytest.mark.slow
def test_what_valgrind_counts_runs_without_it_and_its_absence_is_explained():
    counted = subprocess.run([sys.executable, HERE / "instructions.py", "1"], capture_output=True, text=True)
    command = [sys.executable, HERE / "profiler.py", "--instructions"]
    without = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PATH": ""})

    assert counted.returncode == 0, counted.stderr
    assert without.returncode == 1 and "Install it" in without.stderr


@pytest.mark.slow
def test_what_counts_compare_runs_without_valgrind_and_its_absence_is_explained():
    counted = subprocess.run([sys.executable, HERE / "counts.py", "--inside"], capture_output=True, text=True)
    command = [sys.executable, HERE / "counts.py"]
    without = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PATH": ""})

    assert counted.returncode == 0, counted.stderr
    assert "Modules note, a step" in json.loads(counted.stdout.splitlines()[-1])
    assert without.returncode == 1 and "Install it" in without.stderr


@pytest.mark.slow
def test_the_dashboard_shows_a_large_run_and_says_how_soon(tmp_path):
    pytest.importorskip("tensorboard")

    found = run("dashboard.py", "--ranks", "2", "--steps", "3", "--ops", "40", "--memory", tmp_path=tmp_path)

    assert found["results"]["ranks in it"] == 2 and found["results"]["steps in it"] == 3
    assert found["results"]["spans"] == 2 * 3 * (40 + 4) and found["results"]["trace"] > 0


@pytest.mark.slow
@pytest.mark.oracle
def test_int8_layers_are_timed_against_float32_and_torch(tmp_path):
    pytest.importorskip("torch")

    found = run(
        "quantize.py",
        "--size",
        "64",
        "--batches",
        "2",
        "--rounds",
        "1",
        "--block",
        "0.001",
        tmp_path=tmp_path,
    )

    assert [(r["of"], r["to"]) for r in found["results"]] == [
        ("float32", "int8"), ("torch int8", "int8"), ("int8", "compiled"),
    ]  # fmt: skip


@pytest.mark.slow
def test_pruned_models_are_timed_against_the_originals(tmp_path):
    found = run(
        "compress.py", "resnet", "linear", "--width", "4", "--batches", "2", "--rounds", "1", "--seconds", "0",
        tmp_path=tmp_path,
    )["results"]  # fmt: skip

    assert found["file"] < 1 and found["output change"] < 1e-4
    assert found["latency, batch 1"] > 0 and found["sparse, batch 2"] > 0


@pytest.mark.slow
@pytest.mark.mpi
def test_plans_and_runs_are_compared(tmp_path):
    found = run(
        "plan.py",
        "--rounds",
        "1",
        "--ranks",
        "2",
        "--ways",
        "shard",
        "--width",
        "64",
        "--epochs",
        "4",
        tmp_path=tmp_path,
    )

    (one,) = found["results"]
    assert one["way"] == "shard" and min(one["seconds"]) > 0 and min(one["peak"]) > 1e7


@pytest.mark.slow
@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_streaming_is_timed_beside_tarfile_and_its_traffic_is_counted(tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    sizes = ("--samples", "64", "--side", "4", "--rounds", "1", "--batch", "8", "--workers", "0")

    found = run("data/streaming.py", *sizes, tmp_path=tmp_path)

    assert all(found["results"][0][form] > 0 for form in ("tenon", "random", "stream"))
    by_shard = {row["order"]: row["requests"] for row in found["traffic"] if row["fetch"] == "shard"}
    assert by_shard["groups"] == 16 < by_shard["uniform"]
