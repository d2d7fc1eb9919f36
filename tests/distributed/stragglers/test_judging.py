"""Judging heartbeats: who is called slow, why, when it begins and when it is over."""

import itertools
import time

import pytest

from tenon.config import Config
from tenon.distributed.processes import stragglers, watchdog
from tenon.distributed.processes.heartbeat_table import Heartbeat, HeartbeatTable, table_bytes
from tenon.distributed.processes.stragglers import Member, Settings, Stragglers
from tenon.errors import ConfigError

SECOND = 1_000_000_000


class Job:
    """Heartbeats of ranks that make calls for as long as ``run`` says."""

    def __init__(self, hosts=("a", "a"), stages=None):
        self.judge = Stragglers([Member(host, sorted(set(hosts)).index(host)) for host in hosts], Settings())
        self.beats = [Heartbeat(time=1, place="train.py:1 in step") for _ in hosts]
        for beat, stage in zip(self.beats, stages or [0] * len(hosts), strict=True):
            beat.stage = stage
        self.said = []

    def run(self, seconds, busy, data=None, *, waits=40, processor=1.0, queued=0.0):
        """Let rank r be busy for the share ``busy[r]`` of the time, and read data for ``data[r]``."""
        step = SECOND // 2
        for _ in range(int(2 * seconds)):
            for rank, beat in enumerate(self.beats):
                beat.time += step
                beat.waits += waits
                beat.waited += int(step * (1 - busy[rank]))
                beat.data += int(step * (data or [0] * len(busy))[rank])
                beat.processor += int(step * busy[rank] * processor)
                beat.queued += int(step * busy[rank] * queued)
            self.said += self.judge.observe([Heartbeat(*fields(beat)) for beat in self.beats])
        return self.said


def fields(beat):
    return [getattr(beat, name) for name in Heartbeat.__slots__]


def test_a_rank_that_others_wait_for_is_named_once_and_once_when_it_is_over():
    job = Job(("node7", "node7", "node7", "node8"))
    job.run(20, [0.8, 0.8, 0.8, 0.8])
    job.run(40, [0.5, 0.5, 0.9, 0.5])
    (begun,) = job.said

    assert begun.ranks == (2,) and begun.part == "compute" and begun.share == pytest.approx(0.4, abs=0.1)
    assert begun.text.startswith("tenon: rank 2 on host node7 is slow: the other 3 ranks wait for it ")
    assert "most often at train.py:1 in step (" in begun.text

    job.run(30, [0.8, 0.8, 0.8, 0.8])
    _, over = job.said

    assert over.seconds == pytest.approx(40, abs=3)
    assert over.text == f"tenon: rank 2 on host node7 is no longer slow, after {over.seconds:.0f} s"


def test_it_is_said_within_a_window():
    job = Job()
    job.run(20, [0.8, 0.8])

    assert job.run(7, [0.5, 0.9]) == []
    assert job.run(2, [0.5, 0.9]) != []


def test_waits_for_data_are_told_from_computation():
    job = Job(("a", "a", "a"))
    job.run(12, [0.4, 0.9, 0.4], [0.1, 0.6, 0.1])

    assert job.said[0].part == "data" and job.said[0].data == pytest.approx(0.5)
    assert "\n  part: reading data\n" in job.said[0].text


def test_a_mixture_of_data_and_computation_is_stated():
    job = Job(("a", "a", "a"))
    job.run(12, [0.4, 0.8, 0.4], [0.1, 0.2, 0.1])

    assert "\n  part: 25 % of it reading data, the rest computing\n" in job.said[0].text


def test_data_that_all_ranks_read_equally_long_explains_nothing():
    job = Job(("a", "a", "a"))
    job.run(12, [0.6, 0.9, 0.6], [0.5, 0.5, 0.5])

    assert job.said[0].part == "compute" and job.said[0].data == 0


@pytest.mark.parametrize(
    ("conditions", "words"),
    [
        ({}, "\n  part: computing\n"),
        ({"processor": 0.4}, "computing, with 40 % of a core: it sleeps, or waits for a disk or a network"),
        ({"processor": 0.4, "queued": 0.5}, "computing; 50 % of its time it waits for a core"),
    ],
)
def test_what_is_known_of_its_cores_is_stated(conditions, words):
    job = Job(("a", "a", "a"))
    job.run(12, [0.4, 0.9, 0.4], **conditions)

    assert words in job.said[0].text


def test_a_node_whose_ranks_are_all_slow_is_named_as_one():
    job = Job(("a", "a", "b", "b", "c", "c"))
    job.run(60, [0.4, 0.4, 0.8, 0.7, 0.4, 0.4])
    job.run(30, [0.8] * 6)

    assert [found.ranks for found in job.said] == [(2, 3), (2, 3)]
    assert job.said[0].text.startswith("tenon: node 1 (host b, ranks 2, 3) is slow: the other 4 ranks wait")
    assert job.said[0].record["slow_node"] == 1


def test_ranks_of_the_only_node_are_named_one_by_one():
    job = Job(("a", "a", "a", "a", "a"))
    job.run(20, [0.4, 0.8, 0.4, 0.8, 0.4])

    assert sorted(found.ranks for found in job.said) == [(1,), (3,)]


def test_another_rank_that_becomes_slow_is_an_occurrence_of_its_own():
    job = Job(("a",) * 5)
    job.run(20, [0.4, 0.8, 0.4, 0.4, 0.4])
    job.run(20, [0.4, 0.8, 0.4, 0.8, 0.4])

    assert [found.ranks for found in job.said] == [(1,), (3,)]


def test_one_long_wait_for_a_rank_makes_it_no_straggler():
    job = Job(("a",) * 4)
    for _ in range(5):
        job.run(10, [0.8] * 4)
        job.run(30, [1.0, 0.0, 0.0, 0.0], waits=0)  # rank 0 evaluates alone

    assert job.said == []


def test_long_steps_are_judged_over_more_time():
    job = Job(("a",) * 4)
    for _ in range(20):
        job.run(5, [0.8, 1.0, 0.8, 0.8], waits=0)
        job.run(1, [0.0, 0.9, 0.0, 0.0], waits=20)

    assert [found.ranks for found in job.said] == [(1,)]
    assert job.said[0].share == pytest.approx((5 * 0.2 + 0.9) / 6, abs=0.05)


def test_an_excess_around_the_threshold_is_said_once():
    job = Job(("a",) * 4)
    job.run(12, [0.5, 0.5, 0.75, 0.5])
    for excess in itertools.islice(itertools.cycle([0.1, 0.25, 0.12, 0.2]), 40):
        job.run(5, [0.5, 0.5, 0.5 + excess, 0.5])

    assert len(job.said) == 1


def test_stages_of_a_pipeline_are_compared_with_the_same_stage_of_others_only():
    one = Job(("a", "a"), stages=[1, 2])
    two = Job(("a",) * 4, stages=[1, 2, 1, 2])

    assert one.run(60, [0.3, 0.9]) == []
    assert two.run(60, [0.3, 0.8, 0.3, 0.8]) == []
    (found,) = two.run(20, [0.3, 0.6, 0.3, 0.9])
    assert found.ranks == (3,)
    assert "is slow: the other rank of its stage waits for it" in found.text


def test_a_node_that_has_all_ranks_of_a_stage_is_not_compared_as_a_whole():
    job = Job(("a", "a", "b", "b"), stages=[1, 1, 2, 2])

    assert [found.ranks for found in job.run(20, [0.3, 0.9, 0.3, 0.3])] == [(1,)]


def test_many_ranks_are_judged_quickly_and_exactly():
    size = 2048
    job = Job(tuple(f"n{rank // 8:03}" for rank in range(size)))
    busy = [0.5 + 0.001 * (rank % 7) for rank in range(size)]
    busy[1234] = 0.8
    begun = time.process_time()
    job.run(15, busy)

    assert [found.ranks for found in job.said] == [(1234,)]
    assert job.said[0].host == "n154"
    assert time.process_time() - begun < 10


def test_the_record_has_numbers_for_scalars_and_texts_for_people():
    job = Job(("a",) * 4)
    job.run(12, [0.4, 0.9, 0.4, 0.4], [0.1, 0.5, 0.1, 0.1])
    job.run(30, [0.8] * 4)
    begun, over = (found.record for found in job.said)

    assert begun["slow_rank"] == 1 and begun["slow_wait"] == 0.5 and begun["slow_data"] == 0.4
    assert (begun["slow_part"], begun["slow_host"]) == ("data", "a")
    assert over["slow_rank"] == 1 and over["slow_wait"] == 0.0 and over["slow_seconds"] > 10


@pytest.mark.parametrize("text", ["-1", "101", "often", "nan"])
def test_a_threshold_that_is_no_share_is_refused(text):
    with pytest.raises(ConfigError, match=rf"TENON_SLOW_RANKS='{text}' is not a number of percent"):
        stragglers.settings_in(Config.from_environment({"TENON_SLOW_RANKS": text}))


@pytest.mark.parametrize("text", ["0", "0.9", "1e-12", "-1", "inf", "nan", "long"])
def test_a_window_that_is_too_short_or_endless_is_refused(text):
    with pytest.raises(
        ConfigError, match=rf"TENON_SLOW_RANKS_WINDOW='{text}' is not a number of seconds from 1"
    ):
        stragglers.settings_in(Config.from_environment({"TENON_SLOW_RANKS_WINDOW": text}))


@pytest.mark.parametrize("text", ["-1", "inf", "nan", "soon"])
def test_a_limit_of_the_watchdog_that_is_no_time_is_refused(text):
    with pytest.raises(ConfigError, match=rf"TENON_WATCHDOG='{text}' is not a number of seconds. Write 600"):
        watchdog.limit_in(Config.from_environment({"TENON_WATCHDOG": text}))


def test_settings_are_read_from_the_environment():
    assert stragglers.settings_in(Config.from_environment({})) == Settings(0.15, 10.0)
    found = stragglers.settings_in(
        Config.from_environment({"TENON_SLOW_RANKS": "0", "TENON_SLOW_RANKS_WINDOW": "60"})
    )
    assert found == Settings(0.0, 60.0)


def test_the_row_of_a_rank_has_its_sums_and_its_place():
    table = HeartbeatTable(bytearray(table_bytes(2)), 2, [0, 0])
    beat = Heartbeat(
        5, 6, 7, 8, 9, 0, 10, 11, 12, 13, 14, 3, "call", "  a.py:1 in f\n  b.py:2 in g", "c.py:3 in h"
    )
    table.write(1, beat)

    assert table.read(1) == beat
