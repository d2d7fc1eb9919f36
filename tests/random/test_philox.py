"""The counter-based generator: known answers, independence of the batch division, and keyed contexts."""

import numpy as np
import pytest

import tenon.random as random
from tenon.errors import RandomArgumentError

ONES = 0xFFFFFFFF

# kat_vectors of Random123 1.14, lines "philox4x32 10": counter, key, result.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES,) * 4, (ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN)
def test_philox_gives_the_published_answers(counter, key, result):
    assert random.philox4x32([counter], key).tolist() == [list(result)]


def test_philox_encrypts_rows_independently():
    counters = [c for c, _, _ in KNOWN] * 2

    together = random.philox4x32(counters, (5, 6))

    assert [random.philox4x32([c], (5, 6))[0].tolist() for c in counters] == together.tolist()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_of_a_sample_do_not_depend_on_the_batch(dtype):
    g = random.CounterGenerator(123456789012345)
    whole = g.uniform(step=4, samples=range(5000), op=2, shape=(3, 3), dtype=dtype)

    np.testing.assert_array_equal(
        whole[2500:], g.uniform(step=4, samples=np.arange(2500, 5000), op=2, shape=(3, 3), dtype=dtype)
    )
    np.testing.assert_array_equal(
        whole[[17]], g.uniform(step=4, samples=[17], op=2, shape=(3, 3), dtype=dtype)
    )
    np.testing.assert_array_equal(whole[17], random.philox_uniform(g.seed, 4, 17, 2, (3, 3), dtype))


def test_longer_samples_begin_with_the_same_numbers():
    g = random.CounterGenerator(1)

    long = g.uniform(step=0, samples=[3], op=0, shape=(100,))

    np.testing.assert_array_equal(long[:, :7], g.uniform(step=0, samples=[3], op=0, shape=(7,)))


@pytest.mark.parametrize("change", [{"step": 6}, {"op": 1}, {"samples": [1]}])
def test_every_part_of_the_address_changes_the_numbers(change):
    address = {"step": 5, "samples": [0], "op": 0, "shape": (8,)}
    g = random.CounterGenerator(1)

    assert not np.intersect1d(g.uniform(**address), g.uniform(**{**address, **change})).size
    assert not np.intersect1d(g.uniform(**address), random.CounterGenerator(2).uniform(**address)).size


def test_all_64_bits_of_the_seed_count():
    low, high = (
        random.CounterGenerator(s).words(step=0, samples=0, op=0, count=4) for s in (1, 1 + (1 << 32))
    )

    assert not np.array_equal(low, high)
    assert random.CounterGenerator(-1).seed == 2**64 - 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_uniforms_fill_the_unit_interval_evenly(dtype):
    u = random.CounterGenerator(0).uniform(step=0, samples=range(200), op=0, shape=(1000,), dtype=dtype)

    assert u.dtype == dtype and 0 <= u.min() < 1e-4 and 1 - 1e-4 < u.max() < 1
    counts = np.histogram(u, bins=50, range=(0, 1))[0]
    assert ((counts - 4000.0) ** 2 / 4000.0).sum() < 96  # chi-square, 49 degrees of freedom, p = 6e-5
    assert abs(np.corrcoef(u[:-1].ravel(), u[1:].ravel())[0, 1]) < 0.01


def test_normals_have_the_moments_of_the_normal_distribution():
    z = random.CounterGenerator(0).normal(step=0, samples=range(200), op=0, shape=(1001,)).astype(np.float64)

    assert z.shape == (200, 1001)
    assert abs(z.mean()) < 0.01 and abs(z.var() - 1) < 0.01 and abs((z**4).mean() - 3) < 0.1


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ({"step": -1}, "step=-1"),
        ({"op": 2**32}, "op=4294967296"),
        ({"samples": [0, -3]}, "from -3 to 0"),
        ({"samples": [0.5]}, "must be integers"),
        ({"samples": np.zeros((2, 2), int)}, "shape"),
    ],
)
def test_addresses_outside_the_counter_are_refused(address, message):
    with pytest.raises(RandomArgumentError, match=message):
        random.CounterGenerator(0).uniform(**{"step": 0, "samples": [0], "op": 0, "shape": (1,), **address})


def test_seed_beyond_64_bits_is_refused():
    with pytest.raises(RandomArgumentError, match="64 bits"):
        random.CounterGenerator(2**64)


def test_no_keys_outside_a_keyed_context():
    assert random.keys.current() is None

    with random.keyed(seed=1, step=0, samples=[0]) as outer:
        with random.keyed(seed=1, step=1, samples=[0]) as inner:
            assert random.keys.current() is inner
        assert random.keys.current() is outer

    assert random.keys.current() is None


def test_keyed_context_is_left_after_an_error():
    with pytest.raises(KeyError), random.keyed(seed=1, step=0, samples=[0]):
        raise KeyError
    assert random.keys.current() is None


def test_two_ranks_draw_what_one_rank_draws():
    def operations(samples):
        with random.keyed(seed=9, step=30, samples=samples) as keys:
            return [
                keys.uniform((len(samples), 4)),
                keys.uniform((len(samples), 2, 3)),
                keys.normal((len(samples), 5)),
            ]

    whole = operations(range(8))
    ranks = [operations(range(0, 8, 2)), operations(range(1, 8, 2))]

    for all_rows, even, odd in zip(whole, *ranks, strict=True):
        np.testing.assert_array_equal(all_rows[0::2], even)
        np.testing.assert_array_equal(all_rows[1::2], odd)


def test_operations_of_a_step_differ_and_a_kept_op_repeats():
    with random.keyed(seed=9, step=0, samples=[4, 5]) as keys:
        op = keys.next_op()
        first = keys.uniform((2, 6), op=op)
        second = keys.uniform((2, 6))
        again = keys.uniform((2, 6), op=op)

    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(first, again)


def test_several_rows_of_one_sample_stay_together():
    with random.keyed(seed=9, step=0, samples=[4, 5]) as keys:
        rows = keys.uniform((6, 7), op=0)
        flat = keys.uniform((2, 21), op=0)

    np.testing.assert_array_equal(rows.reshape(2, 21), flat)


def test_rows_that_do_not_belong_to_samples_are_refused():
    with (
        random.keyed(seed=9, step=0, samples=[4, 5]) as keys,
        pytest.raises(RandomArgumentError, match="2 samples"),
    ):
        keys.uniform((3, 7))


def test_seed_of_the_context_defaults_to_the_default_generators():
    with random.fork_rng():
        random.manual_seed(77)
        with random.keyed(step=0, samples=[0]) as keys:
            assert keys.seed == 77


def test_no_samples_give_no_numbers():
    with random.keyed(seed=1, step=0, samples=[]) as keys:
        assert keys.uniform((0, 3)).shape == (0, 3)
