"""The interface of ``Generator``: seeds, the default generator, forks."""

import threading

import numpy as np
import pytest

import tenon.random as random
from tenon.device import Device
from tenon.errors import RandomArgumentError, UnsupportedError
from tenon.random.generator import DEFAULT_SEED


@pytest.fixture(autouse=True)
def _keep_default_state():
    with random.fork_rng():
        yield


def test_manual_seed_returns_the_generator_and_repeats_the_numbers():
    g = random.Generator()
    assert g.manual_seed(3) is g
    first = random.normal(g, (20,))

    g.manual_seed(3)

    np.testing.assert_array_equal(random.normal(g, (20,)), first)


def test_module_manual_seed_returns_the_default_generator():
    assert random.manual_seed(12) is random.default_generator
    assert random.initial_seed() == 12


def test_new_generator_starts_from_the_default_seed():
    assert random.Generator().initial_seed() == DEFAULT_SEED


@pytest.mark.parametrize(
    ("seed", "stored"),
    [(-1, 2**64 - 1), (-(2**63), 2**63), (2**64 - 1, 2**64 - 1), (np.int64(5), 5)],
)
def test_seeds_are_taken_modulo_two_to_the_64(seed, stored):
    assert random.Generator().manual_seed(seed).initial_seed() == stored


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1])
def test_seed_beyond_64_bits_is_refused_and_changes_nothing(seed):
    g = random.Generator().manual_seed(1)

    with pytest.raises(ValueError, match="Overflow when unpacking long long"):
        g.manual_seed(seed)

    assert g.initial_seed() == 1


def test_seed_draws_a_new_seed_and_returns_it():
    g = random.Generator()
    assert g.seed() == g.initial_seed()
    assert g.seed() != g.seed()


def test_seeding_forgets_the_kept_half_of_a_pair():
    g = random.Generator().manual_seed(3)
    expected = random.normal(g, (2,))
    random.normal(g, (1,))

    g.manual_seed(3)

    np.testing.assert_array_equal(random.normal(g, (2,)), expected)


def test_generators_do_not_disturb_each_other():
    a, b = random.Generator().manual_seed(1), random.Generator().manual_seed(1)
    random.uniform(a, (5,))

    np.testing.assert_array_equal(
        random.uniform(b, (5,)), random.uniform(random.Generator().manual_seed(1), (5,))
    )


def test_fork_rng_restores_the_default_state():
    random.manual_seed(6)
    expected = random.normal(None, (3,))
    random.manual_seed(6)

    with random.fork_rng():
        random.normal(None, (100,))

    np.testing.assert_array_equal(random.normal(None, (3,)), expected)


def test_fork_rng_restores_after_an_error_and_can_be_disabled():
    before = random.get_rng_state()
    with pytest.raises(KeyError), random.fork_rng():
        random.uniform(None, (1,))
        raise KeyError
    np.testing.assert_array_equal(random.get_rng_state(), before)

    with random.fork_rng(enabled=False):
        random.uniform(None, (1,))
    assert not np.array_equal(random.get_rng_state(), before)


def test_set_rng_state_continues_from_there():
    state = random.get_rng_state()
    expected = random.uniform(None, (4,))

    random.set_rng_state(state)

    np.testing.assert_array_equal(random.uniform(None, (4,)), expected)


def test_generator_for_another_device_gives_the_same_numbers():
    g = random.Generator(device="cuda:1").manual_seed(2)

    assert g.device == Device("cuda", 1)
    np.testing.assert_array_equal(
        random.normal(g, (9,)), random.normal(random.Generator().manual_seed(2), (9,))
    )


def test_offset_is_refused_as_pytorch_does_for_the_cpu():
    with pytest.raises(UnsupportedError, match="does not use offset"):
        random.Generator().get_offset()
    with pytest.raises(RuntimeError, match="does not use offset"):
        random.Generator().set_offset(4)


def test_something_else_in_place_of_a_generator_is_refused():
    with pytest.raises(RandomArgumentError, match="expected a Generator, got int"):
        random.uniform(5, (2,))


def test_threads_share_a_stream_without_loss_or_repeat():
    g = random.Generator().manual_seed(1)
    parts = []

    def draw():
        for _ in range(50):
            parts.append(random.randint(g, 0, 2**27, (100,)))

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()

    together = np.sort(np.concatenate(parts))
    alone = np.sort(random.randint(random.Generator().manual_seed(1), 0, 2**27, (20_000,)))
    np.testing.assert_array_equal(together, alone)
