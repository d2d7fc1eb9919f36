"""``tenon train`` says which rank the others wait for: in its output, its metrics, and to plugins."""

import pytest

from tenon.distributed.processes import slow_ranks
from tenon.training.metrics import Reporter

pytestmark = pytest.mark.mpi

QUICK = {"TENON_SLOW_RANKS_WINDOW": "2", "TENON_SLOW_RANKS": "30"}
ENDING = """
Net.tensor_parallel_plan = {"layers.0": "colwise", "layers.3": "rowwise"}

import os, signal
from tenon.extend import hookimpl
from tenon.plugins.manager import register


class Ending:
    # Ends the job once what was asked for was reported; a busy machine may take long to.

    @hookimpl
    def tenon_report(self, metrics, step):
        if metrics.get("slow_rank") == RANK and metrics.get(WANTED, 0) > LEAST:
            os.kill(os.getpid(), signal.SIGTERM)


register(Ending(), "ending")
"""


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
    end_at(project, late, "slow_seconds", 4)
    run = train(project, monkeypatch, ranks, f"rank={late} step=30-80 slow=0.15", settings, epochs=100_000)

    assert "stopped by SIGTERM after step " in run.out, run.err
    # On a busy machine ranks may be slow for a while before and after, too.
    *_, begun, over = (line for line in run.metrics if line.get("slow_rank") == late)
    assert begun["slow_part"] == "compute" and begun["step"] <= 81 < over["step"]
    assert over["slow_wait"] == 0
    assert run.out.count(f"tenon: rank {late} on host ") >= 2, run.out


@pytest.mark.slow
def test_a_rank_that_reads_slowly_is_named(project, monkeypatch):
    end_at(project, 0, "slow_wait", 0.3)
    run = train(project, monkeypatch, 2, "rank=0 step=30-80 slow-data=0.15", {}, epochs=100_000)

    assert "stopped by SIGTERM after step " in run.out, run.err
    *_, begun = (line for line in run.metrics if line.get("slow_rank") == 0)
    assert begun["slow_part"] == "data", run.out


@pytest.mark.slow
def test_stages_of_one_pipeline_are_not_compared(project, monkeypatch):
    run = train(project, monkeypatch, 2, "rank=1 step=30-110 slow=0.06", {"pipeline": 2})

    assert run.code == 0 and not any("slow_rank" in line for line in run.metrics), run.out


def end_at(project, rank, wanted, least):
    """End the job once rank 0 has reported more than ``least`` as ``wanted`` of ``rank``."""
    text = ENDING.replace("RANK", str(rank)).replace("WANTED", repr(wanted)).replace("LEAST", str(least))
    with open(project.folder / "small.py", "a") as file:
        file.write(text)


def train(project, monkeypatch, ranks, fault, settings, epochs=250):
    for name, value in QUICK.items():
        monkeypatch.setitem(project.environment, name, value)
    options = [text for key, value in settings.items() for text in ("--set", f"parallel.{key}={value}")]
    quick = ["--set", f"epochs={epochs}", "--set", "checkpoint.every=0", "--set", "log.tensorboard=false"]
    return project.train("my.toml", *quick, *options, "--inject", fault, ranks=ranks)
