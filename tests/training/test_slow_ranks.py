"""``tenon train`` says which rank the others wait for: in its output, its metrics, and to plugins."""

import pytest

from tenon.distributed.processes import slow_ranks
from tenon.training.metrics import Reporter

pytestmark = pytest.mark.mpi

QUICK = {"TENON_SLOW_RANKS_WINDOW": "2", "TENON_SLOW_RANKS": "30"}
PLAN = 'Net.tensor_parallel_plan = {"layers.0": "colwise", "layers.3": "rowwise"}'


def found(**changes):
    values = {
        "ranks": (1,), "others": 3, "stage": 0, "host": "node7", "node": None, "share": 0.4, "data": 0.3,
        "processor": 1.0, "queued": 0.0, "place": "a [b].py:3 in f (2 of 3 samples)",
    }  # fmt: skip
    return slow_ranks.SlowRanks(**{**values, **changes})


def test_the_loop_prints_and_records_what_was_found_since_the_last_step(tmp_path, capfd):
    with Reporter(tmp_path, 1, 1, 0) as reporter:
        slow_ranks.say(found())
        slow_ranks.say(found(seconds=12.34))
        assert "is slow" not in capfd.readouterr().out
        reporter.report_slow_ranks(7)
        reporter.report_slow_ranks(8)
    slow_ranks.say(found())
    out, err = capfd.readouterr()

    assert (
        out.count("tenon: rank 1 on host node7 is slow: the other 3 ranks wait for it 40 % of the time") == 1
    )
    assert "most often at a [b].py:3 in f" in out
    assert out.count("tenon: rank 1 on host node7 is no longer slow, after 12 s") == 1
    assert err.startswith("tenon: rank 1 on host node7 is slow"), "nobody listens any more"
    assert (tmp_path / "metrics.jsonl").read_text().count('"step": 7') == 2


def test_a_closed_standard_error_ends_no_job(monkeypatch):
    tried = []

    def write(descriptor, data):
        tried.append(descriptor)
        raise BrokenPipeError

    monkeypatch.setattr(slow_ranks.os, "write", write)
    slow_ranks.say(found())
    assert tried == [2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "late", "settings"),
    [
        (2, 1, {}),
        (4, 3, {"shard": 4}),
        (4, 1, {"shard": 2, "tensor": 2}),
    ],
)
def test_a_rank_that_is_slow_for_a_while_is_named_however_the_model_is_divided(
    project, monkeypatch, ranks, late, settings
):
    run = train(project, monkeypatch, ranks, f"rank={late} step=30-80 slow=0.15", settings)

    # On a busy machine other ranks may be slow for a while, too.
    begun, over, *_ = (line for line in run.metrics if line.get("slow_rank") == late)
    assert begun["slow_part"] == "compute" and begun["step"] > 30
    assert over["slow_wait"] == 0 and over["slow_seconds"] > 1
    assert run.out.count(f"tenon: rank {late} on host ") >= 2, run.out


@pytest.mark.slow
def test_a_rank_that_reads_slowly_is_named(project, monkeypatch):
    run = train(project, monkeypatch, 2, "rank=0 step=30-80 slow-data=0.15", {})

    begun, *_ = (line for line in run.metrics if line.get("slow_rank") == 0)
    assert begun["slow_part"] == "data", run.out


@pytest.mark.slow
def test_stages_of_one_pipeline_are_not_compared(project, monkeypatch):
    run = train(project, monkeypatch, 2, "rank=1 step=30-110 slow=0.06", {"pipeline": 2})

    assert run.code == 0 and not any("slow_rank" in line for line in run.metrics), run.out


def train(project, monkeypatch, ranks, fault, settings):
    """Train for several seconds after the last slow step."""
    for name, value in QUICK.items():
        monkeypatch.setitem(project.environment, name, value)
    options = [text for key, value in settings.items() for text in ("--set", f"parallel.{key}={value}")]
    with open(project.folder / "small.py", "a") as file:
        file.write(PLAN)
    quick = ["--set", "epochs=250", "--set", "checkpoint.every=0", "--set", "log.tensorboard=false"]
    return project.train("my.toml", *quick, *options, "--inject", fault, ranks=ranks)
