"""The word stream against published and independent MT19937 results, and its state."""

import copy
import pickle

import numpy as np
import pytest

from tenon import random
from tenon.errors import RandomStateError
from tenon.random.mt19937 import BLOCK, BUFFER, STATE_LAYOUT, MersenneTwister


def test_first_words_are_those_of_the_reference_implementation():
    # mt19937ar.c with init_genrand(5489), as printed by std::mt19937 too.
    assert MersenneTwister(5489).take(3).tolist() == [3499211612, 581869302, 3890346734]


def test_ten_thousandth_word_is_the_one_the_cpp_standard_demands():
    assert int(MersenneTwister(5489).take(10000)[-1]) == 4123659995


@pytest.mark.parametrize(
    "sizes", [[1] * 40, [BUFFER - 1, 1, 1], [BUFFER, 3], [3, BUFFER, 5], [5, 9999, 2, BUFFER + 7, 1]]
)
def test_words_do_not_depend_on_how_they_are_asked_for(sizes):
    cut = MersenneTwister(11)

    taken = np.concatenate([cut.take(n).copy() for n in sizes])

    np.testing.assert_array_equal(taken, MersenneTwister(11).take(sum(sizes)))


def test_only_the_low_32_bits_of_the_seed_choose_the_stream():
    assert MersenneTwister(7 + (9 << 32)).take(4).tolist() == MersenneTwister(7).take(4).tolist()


@pytest.mark.parametrize("drawn", [0, 1, 5, BLOCK - 1, BLOCK, BLOCK + 1, BUFFER, BUFFER + 10, 300_001])
def test_state_restores_the_position(drawn):
    stream = MersenneTwister(3)
    for part in (drawn // 3, drawn - drawn // 3):
        stream.take(part)
    state = stream.state()
    expected = stream.take(1000).copy()
    other = MersenneTwister(99)

    other.set_state(state)

    np.testing.assert_array_equal(other.take(1000), expected)
    assert other.seed == 3


def test_reading_the_state_does_not_disturb_the_stream():
    watched, plain = MersenneTwister(5), MersenneTwister(5)

    words = []
    for n in (3, 700, 4, 5000, 17, 200_000, 9):
        words.append(watched.take(n).copy())
        first, second = watched.state(), watched.state()
        np.testing.assert_array_equal(first, second)

    np.testing.assert_array_equal(np.concatenate(words), plain.take(sum(map(len, words))))


def test_state_holds_the_kept_half_of_a_pair():
    g = random.Generator().manual_seed(4)
    random.normal(g, (3,))
    state = g.get_state()
    expected = random.normal(g, (3,))

    g.set_state(state)

    np.testing.assert_array_equal(random.normal(g, (3,)), expected)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda s: s[:-1], "size 5056 .* to be 5055"),
        (lambda s: s.astype(np.int64), "torch.ByteTensor"),
        (lambda s: s.reshape(2, -1), "torch.ByteTensor"),
        (lambda s: np.zeros_like(s), "Invalid mt19937 state"),
    ],
)
def test_damaged_state_is_refused_and_changes_nothing(damage, message):
    g = random.Generator().manual_seed(4)
    before = np.array(g.get_state())

    with pytest.raises(RandomStateError, match=message):
        g.set_state(damage(before.copy()))

    np.testing.assert_array_equal(g.get_state(), before)


def test_impossible_position_is_refused():
    state = np.array(random.Generator().get_state())
    state.view(STATE_LAYOUT)["left"] = 0

    with pytest.raises(RandomStateError, match="left=0"):
        random.Generator().set_state(state)


def test_generators_are_copied_and_pickled_with_their_position():
    g = random.Generator().manual_seed(8)
    random.uniform(g, (10,))

    copies = [copy.deepcopy(g), pickle.loads(pickle.dumps(g)), g.clone_state()]
    expected = random.uniform(g, (10,))

    for other in copies:
        assert other.initial_seed() == 8
        np.testing.assert_array_equal(random.uniform(other, (10,)), expected)
