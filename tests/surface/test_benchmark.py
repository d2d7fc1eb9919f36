"""``torch.utils.benchmark``: times with their spread, and tables of them."""

import itertools

import pytest

import tenon
from tenon.errors import UnsupportedError
from tenon.utils import benchmark
from tenon.utils.benchmark import Compare, Measurement, TaskSpec, Timer


class Clock:
    """A clock that advances only when told to."""

    now = 0.0

    def __call__(self):
        return self.now

    def takes(self, *seconds):
        """A timer whose statement takes the given ``seconds`` in turn, cyclically."""
        costs = itertools.cycle(seconds)

        def work():
            self.now += next(costs)

        return Timer("work()", timer=self, globals={"work": work})


def measured(times, **names):
    return Measurement(2, [2 * t for t in times], TaskSpec("x + 1", "pass", **names))


def test_a_statement_is_timed_with_what_it_was_given():
    threads = tenon.get_num_threads()
    x = tenon.zeros(3)
    timer = Timer("x.add_(torch.ones(3)); n[0] += 1", globals={"x": x, "n": (n := [0])}, num_threads=1)
    m = timer.timeit(200)
    assert n == [202] and x.tolist() == [202.0] * 3 and m.number_per_run == 200 and m.median > 0
    assert tenon.get_num_threads() == threads
    assert (m.stmt, m.num_threads, m.label) == (timer._task_spec.stmt, 1, None)
    with pytest.raises(AttributeError, match="nothing"):
        m.nothing  # noqa: B018
    code = """
        y = 1
        z = y
    """
    assert Timer(code).timeit(10).stmt == "y = 1\nz = y"


def test_blocks_are_repeated_until_there_is_enough():
    seen = []
    m = Clock().takes(0.001).blocked_autorange(lambda *each: seen.append(each), min_run_time=0.0045)
    assert m.raw_times == pytest.approx([0.001] * 5) and len(seen) == 5 and seen[0][0] == 1
    m = Clock().takes(0.001).adaptive_autorange(min_run_time=0.001)
    assert len(m.times) == 4 and m.iqr == pytest.approx(0)
    m = Clock().takes(0.001, 0.1).adaptive_autorange(0.0, min_run_time=0.0, max_run_time=1.0)
    assert 1.0 <= sum(m.raw_times) < 1.2
    assert Clock().takes(2e-8).blocked_autorange(min_run_time=0.0001).number_per_run == 1000


def test_what_is_measured_is_told_in_words():
    m = measured([4e-6, 5e-6, 5e-6, 9e-6], label="add", sub_label="small", description="n=1")
    assert (m.median, m.mean, m.iqr) == pytest.approx((5e-6, 5.75e-6, 1.25e-6))
    assert m.significant_figures == 2 and m.has_warnings and not m.meets_confidence()
    assert str(m).splitlines()[1:] == [
        "add: small", "n=1", "  Median: 5.00 us", "  IQR:    1.25 us (4.75 to 6.00)",
        "  4 measurements, 2 runs per measurement, 1 thread",
        "  WARNING: Interquartile range is 25.0% of the median measurement.",
        "           This could indicate system fluctuation.",
    ]  # fmt: skip
    one = measured([0.25])
    assert str(one).splitlines()[1:] == ["x + 1", "  250.00 ms", "  1 measurement, 2 runs, 1 thread"]
    merged = Measurement.merge([one, m, measured([0.5])])
    assert [x.raw_times for x in merged] == [[0.25, 0.5], pytest.approx(m.times)]
    several = TaskSpec("a\nb", "c\nd", sub_label="two")
    assert several.summarize() == "stmt: (two)\n  a\n  b\n\nsetup:\n  c\n  d\n".replace(
        "stmt: (two)", "stmt: (two)"
    )


def test_measurements_are_compared_in_a_table():
    table = Compare([
        measured([1e-6], label="add", sub_label="a", description="n=1"),
        measured([20e-6], label="add", sub_label="a", description="n=10"),
        measured([2e-6], label="add", sub_label="b", description="n=1"),
        measured([3e-6], label="add", sub_label="a", description="n=1", num_threads=4),
    ])  # fmt: skip
    plain = (
        "[-------- add ---------]\n"
        "         |  n=1  |  n=10\n"
        "1 threads: -------------\n"
        "      a  |  1.0  |  20.0\n"
        "      b  |  2.0  |      \n"
        "4 threads: -------------\n"
        "      a  |  3.0  |      \n"
        "\nTimes are in microseconds (us).\n"
    )
    assert [line.rstrip() for line in str(table).splitlines()] == [
        line.rstrip() for line in plain.splitlines()
    ]
    table.colorize()
    assert "\033[92m" in str(table) and "\033[91m" in str(table)
    table.colorize(rowwise=True)
    assert "\033[31m" in str(table)
    table = Compare([measured([1e-6, 2e-6, 3e-6, 4e-6], env="old"), measured([1e-6], env="new")])
    table.highlight_warnings()
    table.trim_significant_figures()
    assert "(! 60%)" in str(table) and "(old)" in str(table) and "high variance" in str(table)
    with pytest.raises(ValueError, match="Expected an instance of `Measurement`"):
        table.extend_results([1.0])


def test_what_is_not_measured_is_refused():
    with pytest.raises(UnsupportedError, match="C\\+\\+"):
        Timer("1;", language="c++")
    with pytest.raises(UnsupportedError, match="callgrind"):
        Timer().collect_callgrind()
    with pytest.raises(ValueError, match="Invalid language `x`"):
        Timer(language="x")
    with pytest.raises(ValueError, match="only a `str`"):
        Timer(print)
    with pytest.raises(ValueError, match="global_setup is C"):
        Timer(global_setup="#include")
    with pytest.raises(NotImplementedError, match="blocked_autorange"):
        Timer().repeat()


def test_numbers_are_made_readable():
    assert [benchmark.select_unit(t)[0] for t in (2e-8, 2e-5, 0.2, 2.0, 200.0)] == [
        "ns",
        "us",
        "ms",
        "s",
        "s",
    ]
    assert benchmark.unit_to_english("ms") == "millisecond"
    assert [benchmark.trim_sigfig(x, 2) for x in (3.14159, 1234.0, 0.0)] == [3.1, 1200.0, 0.0]
    assert benchmark.ordered_unique([2, 1, 2]) == [2, 1]
