"""Distributions without PyTorch: printed values, moments, layouts, and arguments that are refused."""

import hashlib
import math

import ml_dtypes
import numpy as np
import pytest

import tenon.random as random
from tenon.errors import RandomArgumentError, UnsupportedError, ViewError

pytestmark = pytest.mark.together

FLOATS = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]


def seeded(seed=1):
    return random.Generator().manual_seed(seed)


def test_values_printed_in_the_modules_note_come_out():
    g = seeded(1)
    bound = 1 / math.sqrt(3)
    weight = random.uniform(g, (3, 3), np.float32, -bound, bound)
    bias = random.uniform(g, (3,), np.float32, -bound, bound)
    batch = random.normal(g, (2, 3))

    out = batch @ weight.T + bias

    np.testing.assert_allclose(out[0], [-0.5059, -0.8158, 0.2390], atol=5e-5)


def test_known_values_of_seed_0():
    # torch.manual_seed(0): rand(3), randn(3), randint(10, (5,)), randperm(5), each after seeding anew.
    assert random.uniform(seeded(0), (3,)).tolist() == pytest.approx(
        [0.4962565899, 0.7682217956, 0.0884774327]
    )
    assert random.normal(seeded(0), (3,)).tolist() == pytest.approx(
        [1.5409960747, -0.2934289277, -2.1787893772]
    )
    assert random.randint(seeded(0), 0, 10, (5,)).tolist() == [4, 9, 3, 0, 3]
    assert random.randperm(seeded(0), 5).tolist() == [4, 0, 1, 3, 2]


def test_a_million_float32_normals_are_the_same_on_every_machine():
    # Only IEEE sums, products and square roots are used. The digest is that of torch.randn(2**20) on AVX2.
    values = random.normal(seeded(0), (1 << 20,))

    digest = hashlib.sha256(values.astype("<f4").tobytes()).hexdigest()
    assert digest == "a64b21e3148993fa3457e801fb793d25b39a5f4234aa29735e1c9d6405f75f44"


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (5,), (2, 3, 4), (7, 11)])
def test_shape_and_dtype_are_as_asked(dtype, shape):
    for draw in (random.uniform, random.normal, random.exponential, random.cauchy, random.log_normal):
        values = draw(seeded(), shape, dtype)
        assert values.shape == shape and values.dtype == dtype and values.flags.c_contiguous


@pytest.mark.parametrize("size", [4, 15, 16, 17, 40, 640, 50_001])
def test_filling_an_array_gives_the_numbers_of_a_new_one(size):
    for draw in (random.uniform, random.normal, random.exponential):
        out = np.full(size, np.nan, np.float32)
        assert draw(seeded(), out=out) is out
        np.testing.assert_array_equal(out, draw(seeded(), (size,)))


def test_transposed_arrays_are_filled_in_memory_order():
    plain = random.uniform(seeded(), (4, 6))
    out = np.empty((6, 4), np.float32).T

    random.uniform(seeded(), out=out)

    np.testing.assert_array_equal(out.T.reshape(-1), plain.reshape(-1))


def test_gaps_between_strided_elements_are_left_alone():
    buffer = np.full((10, 3), 7.0, np.float32)

    random.normal(seeded(), out=buffer[:, 1])

    assert (buffer[:, [0, 2]] == 7).all() and (buffer[:, 1] != 7).all()


def test_array_with_shared_elements_is_refused():
    shared = np.broadcast_to(np.zeros(1, np.float32), (4,))

    with pytest.raises(ViewError, match=r"single memory location .*\(4,\)"):
        random.uniform(seeded(), out=shared)


@pytest.mark.parametrize(("size", "draws"), [(10, 2000), (100_000, 1)])
def test_normals_have_the_asked_moments(size, draws):
    g = seeded()
    values = np.concatenate([random.normal(g, (size,), np.float32, 3.0, 0.5) for _ in range(draws)])

    assert abs(values.mean() - 3.0) < 0.02 and abs(values.std() - 0.5) < 0.02


def test_distributions_have_their_moments():
    g, n = seeded(3), (100_000,)

    assert abs(random.uniform(g, n, np.float32, -2.0, 4.0).mean() - 1.0) < 0.03
    assert abs(random.exponential(g, n, np.float32, 2.0).mean() - 0.5) < 0.01
    assert abs(np.median(random.cauchy(g, n, np.float32, 5.0, 2.0)) - 5.0) < 0.05
    assert abs(np.median(random.log_normal(g, n, np.float32, 1.0, 0.5)) - math.e) < 0.05
    assert abs(random.geometric(g, 0.25, n).mean() - 4.0) < 0.06
    assert abs(random.bernoulli(g, 0.3, n).mean() - 0.3) < 0.01
    assert abs(random.randint(g, -10, 11, n).mean()) < 0.15


def test_bounds_are_kept():
    g = seeded()
    for dtype in FLOATS:
        values = random.uniform(g, (20_000,), dtype, -1.0, 3.0).astype(np.float64)
        assert values.min() >= -1.0 and values.max() < 3.0
    values = random.randint(g, -3, 4, (1000,))
    assert values.min() == -3 and values.max() == 3
    assert random.geometric(g, 0.9, (1000,)).min() == 1


def test_degenerate_scales_give_constants():
    assert (random.normal(seeded(), (40,), np.float32, 2.0, 0.0) == 2).all()
    assert (random.uniform(seeded(), (40,), np.float32, 2.0, 2.0) == 2).all()
    assert not random.bernoulli(seeded(), 0.0, (40,)).any() and random.bernoulli(seeded(), 1.0, (40,)).all()


def test_complex_normals_have_unit_variance_over_both_parts():
    z = random.normal(seeded(), (50_000,), np.complex64)

    assert abs(z.real.var() - 0.5) < 0.02 and abs(z.imag.var() - 0.5) < 0.02


@pytest.mark.parametrize("n", [0, 1, 2, 50, 1000, 1001, 5000, 40_000])
def test_permutations_hold_every_index_once(n):
    values = random.randperm(seeded(n), n)

    assert values.dtype == np.int64
    np.testing.assert_array_equal(np.sort(values), np.arange(n))


def test_vectorised_rounds_shuffle_like_the_loop(monkeypatch):
    expected = random.randperm(seeded(2), 20_000)

    monkeypatch.setattr("tenon.random.permutation._SHORT", 10**9)

    np.testing.assert_array_equal(random.randperm(seeded(2), 20_000), expected)


def test_long_permutations_are_shuffled_inside_out(monkeypatch):
    monkeypatch.setattr("tenon.random.permutation.LONG_PERMUTATION", 0)
    words = seeded(5)
    draws = [int(w) for w in random.randint(words, -(2**63), 2**63 - 1, (10,)).astype(object)]
    expected: list[int] = []
    for i, draw in enumerate(draws):
        # randint's range 2**64 - 1 leaves every word but the largest as it is.
        j = (draw + 2**63) % (i + 1)
        expected.append(i)
        expected[i], expected[j] = expected[j], i

    assert random.randperm(seeded(5), 10).tolist() == expected


def test_multinomial_never_draws_weight_zero_and_never_repeats_without_replacement():
    weights = np.array([[0.0, 1.0, 2.0, 0.0, 3.0], [1.0, 0.0, 0.0, 1.0, 1.0]], np.float32)

    rows = random.multinomial(seeded(), weights, 3)

    assert sorted(rows[0].tolist()) == [1, 2, 4] and sorted(rows[1].tolist()) == [0, 3, 4]
    many = random.multinomial(seeded(), weights[0], 9000, True)
    np.testing.assert_allclose(np.bincount(many, minlength=5) / 9000, weights[0] / 6, atol=0.02)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("count", [1, 2, 5, 60])
def test_multinomial_without_replacement_takes_the_largest_quotients_in_order(dtype, count):
    weights = np.random.default_rng(2).random((7, 240)).astype(dtype)
    weights[3, 30:] = 0  # as many zeros as make ties at the edge of what is taken
    quotients = np.empty_like(weights)
    random.exponential(seeded(), out=quotients)
    order = np.argsort(-(weights / quotients).astype(np.float64), axis=-1, kind="stable")

    made = random.multinomial(seeded(), weights, count)

    np.testing.assert_array_equal(made, order[:, :count])


def test_multinomial_writes_into_out_and_accepts_no_rows():
    out = np.empty((2, 3), np.int64)
    assert random.multinomial(seeded(), np.ones((2, 4)), 3, True, out=out) is out
    np.testing.assert_array_equal(out, random.multinomial(seeded(), np.ones((2, 4)), 3, True))
    assert random.multinomial(seeded(), np.ones((0, 4)), 2).shape == (0, 2)


REFUSED = {
    "normal std": (
        lambda g: random.normal(g, (2,), np.float32, 0.0, -1.0),
        "normal expects std >= 0.0, but found std -1",
    ),
    "normal nan": (lambda g: random.normal(g, (2,), np.float32, 0.0, math.nan), "std >= 0.0"),
    "normal array": (
        lambda g: random.normal(g, mean=0.0, std=np.array([1.0, -1.0])),
        "all elements of std >= 0.0",
    ),
    "uniform order": (lambda g: random.uniform(g, (2,), np.float32, 2.0, 1.0), r"found from=2.0 > to=1.0"),
    "uniform bound": (lambda g: random.uniform(g, (2,), np.float16, 0.0, 1e5), "to is out of bounds"),
    "uniform width": (lambda g: random.uniform(g, (2,), np.float16, -6e4, 6e4), "exceed the limit"),
    "exponential": (lambda g: random.exponential(g, (2,), lambd=0.0), "lambda > 0.0, but found lambda=0.0"),
    "cauchy": (lambda g: random.cauchy(g, (2,), sigma=-1.0), "sigma > 0.0"),
    "log_normal": (lambda g: random.log_normal(g, (2,), std=0.0), "std > 0.0, but found std=0.0"),
    "geometric": (lambda g: random.geometric(g, 1.0, (2,)), r"p to be in \(0, 1\), but got p=1.0"),
    "bernoulli": (lambda g: random.bernoulli(g, 1.5, (2,)), r"p to be in \[0, 1\], but got p=1.5"),
    "bernoulli array": (lambda g: random.bernoulli(g, np.array([0.5, 1.5])), "p_in >= 0 && p_in <= 1"),
    "bernoulli nan": (lambda g: random.bernoulli(g, np.array([np.nan])), "p_in >= 0 && p_in <= 1"),
    "randint order": (lambda g: random.randint(g, 3, 3, (2,)), "got from=3 >= to=3"),
    "randint bound": (
        lambda g: random.randint(g, 0, 300, (2,), np.uint8),
        "to - 1 is out of bounds for unsigned char",
    ),
    "randint low": (
        lambda g: random.randint(g, -300, 3, (2,), np.int8),
        "from is out of bounds for signed char",
    ),
    "random_ from": (
        lambda g: random.random_(g, (2,), np.float32, 2**31, None),
        "less than or equal to 'to_inc'",
    ),
    "randperm": (lambda g: random.randperm(g, -1), "negative dimension -1"),
    "randperm half": (lambda g: random.randperm(g, 3000, np.float16), "cannot be greater than 2049"),
    "randperm byte": (lambda g: random.randperm(g, 300, np.uint8), "cannot be greater than 255"),
    "multinomial dim": (lambda g: random.multinomial(g, np.ones((2, 2, 2)), 1), "must be 1 or 2 dim"),
    "multinomial int": (lambda g: random.multinomial(g, np.ones(3, int), 1), "only supports floating-point"),
    "multinomial none": (lambda g: random.multinomial(g, np.ones(3), 0), "n_sample <= 0"),
    "multinomial many": (lambda g: random.multinomial(g, np.ones(3), 4), "without replacement, got 4 > 3"),
    "multinomial negative": (lambda g: random.multinomial(g, np.array([-1.0, 2]), 2, True), "element < 0"),
    "multinomial nan": (lambda g: random.multinomial(g, np.array([np.nan, 2]), 2, True), "`nan`"),
    "multinomial zero": (lambda g: random.multinomial(g, np.zeros(3), 1), "sum of probabilities <= 0"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_arguments_are_refused_before_the_stream_moves(case):
    call, message = REFUSED[case]
    g = seeded()
    before = g.get_state()

    with pytest.raises(RandomArgumentError, match=message):
        call(g)

    np.testing.assert_array_equal(g.get_state(), before)


@pytest.mark.parametrize(
    ("draw", "dtype", "message"),
    [
        (random.uniform, np.int64, "\"check_uniform_bounds\" not implemented for 'Long'"),
        (random.normal, np.int32, "\"normal_kernel_cpu\" not implemented for 'Int'"),
        (random.exponential, np.uint8, "not implemented for 'Byte'"),
        (lambda g, s, d: random.randperm(g, 3, d), np.bool_, "\"randperm\" not implemented for 'Bool'"),
        (lambda g, s, d: random.randint(g, 0, 2, s, d), np.complex64, "not implemented for 'ComplexFloat'"),
    ],
)
def test_dtypes_without_the_distribution_are_refused(draw, dtype, message):
    with pytest.raises(UnsupportedError, match=message):
        draw(seeded(), (2,), dtype)


def test_float_integers_beyond_exact_range_warn():
    with pytest.warns(UserWarning, match=r"to - 1 is out of bounds \[-\(2\^24\), 2\^24\]"):
        random.randint(seeded(), 0, 2**30, (2,), np.float32)
