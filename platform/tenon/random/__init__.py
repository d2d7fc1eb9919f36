"""Random numbers: PyTorch's CPU stream, and counter-based numbers.

Two kinds of randomness, for two needs:

- **Streams** (``Generator``, ``manual_seed``): PyTorch's CPU generator bit for bit, so that a seed yields the
  same initial weights and samples as there. Draws depend on everything drawn before.
- **Counters** (``philox``, ``keys``): a number is a function of (seed, step, sample, op) alone, so that
  dropout is the same for a sample on any rank and in any batch, and a step that is run again repeats it.

Everything here works on NumPy arrays; ``ops/random.py`` and the Tensor methods call it.
"""

from tenon.random import keys
from tenon.random.continuous import cauchy, exponential, log_normal, normal, uniform
from tenon.random.discrete import bernoulli, geometric, randint, random_
from tenon.random.generator import (
    Generator,
    default_generator,
    fork_rng,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
    state_conversion,
)
from tenon.random.keys import Keys, keyed
from tenon.random.permutation import randperm
from tenon.random.philox import CounterGenerator, philox4x32, philox_uniform
from tenon.random.weighted import multinomial

__all__ = [
    "CounterGenerator",
    "Generator",
    "Keys",
    "bernoulli",
    "cauchy",
    "default_generator",
    "exponential",
    "fork_rng",
    "geometric",
    "get_rng_state",
    "initial_seed",
    "keyed",
    "keys",
    "log_normal",
    "manual_seed",
    "multinomial",
    "normal",
    "philox4x32",
    "philox_uniform",
    "randint",
    "random_",
    "randperm",
    "seed",
    "set_rng_state",
    "state_conversion",
    "uniform",
]
