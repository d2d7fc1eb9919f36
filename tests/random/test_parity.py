"""Every bit of the stream against real PyTorch."""

import ml_dtypes
import numpy as np
import pytest

import tenon.random as random

torch = pytest.importorskip("torch", reason="parity with PyTorch needs the extra `oracle`")

pytestmark = [
    pytest.mark.together,
    pytest.mark.oracle,
    pytest.mark.draws,  # ours are the same everywhere: tests/random/test_distributions.py holds them to digests
]

FLOATS = {
    "float32": (np.float32, torch.float32),
    "float64": (np.float64, torch.float64),
    "float16": (np.float16, torch.float16),
    "bfloat16": (ml_dtypes.bfloat16, torch.bfloat16),
}
INTEGERS = {n: (getattr(np, n), getattr(torch, n)) for n in ("int64", "int32", "int16", "int8", "uint8")}
BOOL = {"bool": (np.bool_, torch.bool)}
NUMBERS = FLOATS | INTEGERS
SIZES = [0, 1, 2, 3, 15, 16, 17, 31, 32, 33, 100, 640, 10007]

fill_dtypes = pytest.mark.parametrize("dtype", FLOATS)
sizes = pytest.mark.parametrize("size", SIZES)


def to_numpy(tensor):
    tensor = tensor.contiguous()
    return (
        tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        if tensor.dtype == torch.bfloat16
        else tensor.numpy()
    )


def to_torch(array):
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def bits(array):
    return np.ascontiguousarray(array).view(
        {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[array.dtype.itemsize]
    )


class Pair:
    """Our generator and PyTorch's from one seed; ``same`` compares results and then the states."""

    def __init__(self, seed):
        self.ours = random.Generator().manual_seed(seed)
        self.theirs = torch.Generator().manual_seed(seed)

    def same(self, array, tensor):
        expected = to_numpy(tensor)
        assert array.dtype == expected.dtype and array.shape == expected.shape
        np.testing.assert_array_equal(bits(array), bits(expected))
        np.testing.assert_array_equal(self.ours.get_state(), self.theirs.get_state().numpy())


@pytest.mark.parametrize("seed", [0, 1, 42, -1, 2**31, 2**32 + 5, 2**64 - 1])
def test_seeds_start_the_same_stream_and_state(seed):
    p = Pair(seed)
    np.testing.assert_array_equal(p.ours.get_state(), p.theirs.get_state().numpy())
    assert p.ours.initial_seed() == p.theirs.initial_seed()
    p.same(random.uniform(p.ours, (700,)), torch.rand(700, generator=p.theirs))


def test_states_travel_both_ways():
    pair = Pair(20)
    random.normal(pair.ours, (7,))
    torch.randn(1234, generator=pair.theirs)
    ours, theirs = np.array(pair.ours.get_state()), pair.theirs.get_state()

    pair.theirs.set_state(torch.from_numpy(ours.copy()))
    pair.same(random.normal(pair.ours, (9,)), torch.randn(9, generator=pair.theirs))
    pair.ours.set_state(theirs)
    pair.theirs.set_state(theirs)
    pair.same(random.normal(pair.ours, (999,)), torch.randn(999, generator=pair.theirs))


@fill_dtypes
@sizes
def test_rand(dtype, size):
    pair = Pair(20)
    kind, torch_kind = FLOATS[dtype]
    for _ in range(2):
        pair.same(
            random.uniform(pair.ours, (size,), kind),
            torch.rand(size, dtype=torch_kind, generator=pair.theirs),
        )


@fill_dtypes
@sizes
def test_randn(dtype, size):
    pair = Pair(20)
    kind, torch_kind = FLOATS[dtype]
    for _ in range(3):
        pair.same(
            random.normal(pair.ours, (size,), kind),
            torch.randn(size, dtype=torch_kind, generator=pair.theirs),
        )


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    "sizes", [(16,), (48,), (624,), (20,), (300,), (511,), (64, 32), (37, 37, 16), (37, 37, 5)], ids=str
)
def test_repeated_small_randn_crosses_buffers(sizes, dtype):
    pair = Pair(20)
    kind, torch_kind = FLOATS[dtype]
    for i in range(150):
        size = sizes[i % len(sizes)]
        theirs = torch.randn(size, dtype=torch_kind, generator=pair.theirs)
        pair.same(random.normal(pair.ours, (size,), kind), theirs)


@pytest.mark.parametrize("size", [48, 37])
def test_numbers_computed_ahead_are_dropped_when_the_stream_jumps(size):
    pair = Pair(20)

    def draw():
        pair.same(random.normal(pair.ours, (size,)), torch.randn(size, generator=pair.theirs))

    for _ in range(4):
        draw()
    state = pair.theirs.get_state()
    draw()
    pair.ours.set_state(state)
    pair.theirs.set_state(state)
    draw()
    pair.ours.manual_seed(9)
    pair.theirs.manual_seed(9)
    for _ in range(3):
        draw()
    pair.same(random.uniform(pair.ours, (3,)), torch.rand(3, generator=pair.theirs))
    for _ in range(3):
        draw()


def test_a_million_normals():
    pair = Pair(20)
    pair.same(random.normal(pair.ours, (1_000_003,)), torch.randn(1_000_003, generator=pair.theirs))


@pytest.mark.parametrize(
    "dtype", [(np.complex64, torch.complex64), (np.complex128, torch.complex128)], ids=str
)
def test_complex_randn(dtype):
    pair = Pair(20)
    ours = random.normal(pair.ours, (21,), dtype[0])
    theirs = torch.view_as_real(torch.randn(21, dtype=dtype[1], generator=pair.theirs))
    pair.same(ours.view(ours.real.dtype).reshape(21, 2), theirs)


@fill_dtypes
@sizes
@pytest.mark.parametrize("bounds", [(-0.3, 0.3), (0.1, 5.7), (-3.3, 0.0), (2.0, 2.0), (-60000.0, 1.0)])
def test_uniform_between_bounds(dtype, size, bounds):
    pair = Pair(20)
    kind, torch_kind = FLOATS[dtype]
    theirs = torch.empty(size, dtype=torch_kind).uniform_(*bounds, generator=pair.theirs)
    pair.same(random.uniform(pair.ours, (size,), kind, *bounds), theirs)


@fill_dtypes
@sizes
@pytest.mark.parametrize("scale", [(0.0, 0.02), (1.5, 2.3), (-4.0, 1.0), (3.0, 0.0), (1e4, 0.7)])
def test_normal_with_mean_and_std(dtype, size, scale):
    pair = Pair(20)
    kind, torch_kind = FLOATS[dtype]
    theirs = torch.empty(size, dtype=torch_kind).normal_(*scale, generator=pair.theirs)
    pair.same(random.normal(pair.ours, (size,), kind, *scale), theirs)


LAYOUTS = {
    "transposed": lambda a: a.swapaxes(0, 1),
    "permuted": lambda a: a.swapaxes(0, 2).swapaxes(1, 2),
    "stepped": lambda a: a[:, ::2],
    "column": lambda a: a[:, 0],
    "contiguous": lambda a: a[1:],
}
FILLS = {
    "uniform": (FLOATS, random.uniform, {"low": -1.0, "high": 2.5}, "uniform_", (-1.0, 2.5)),
    "normal": (FLOATS, random.normal, {"mean": 0.5, "std": 2.3}, "normal_", (0.5, 2.3)),
    "exponential": (FLOATS, random.exponential, {"lambd": 1.7}, "exponential_", (1.7,)),
    "cauchy": (FLOATS, random.cauchy, {"median": 0.7, "sigma": 2.1}, "cauchy_", (0.7, 2.1)),
    "log_normal": (FLOATS, random.log_normal, {"mean": 0.7, "std": 1.1}, "log_normal_", (0.7, 1.1)),
    "geometric": (NUMBERS, random.geometric, {"p": 0.1}, "geometric_", (0.1,)),
    "random": (NUMBERS | BOOL, random.random_, {}, "random_", ()),
    "random from": (NUMBERS, random.random_, {"from_": 3}, "random_", (3, None)),
    "random range": (NUMBERS, random.randint, {"low": 2, "high": 99}, "random_", (2, 99)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("name", "dtype"), [(n, d) for n, case in FILLS.items() for d in case[0]])
def test_fills_of_every_layout(name, dtype, layout):
    pair = Pair(20)
    kinds, draw, options, method, arguments = FILLS[name]
    kind, torch_kind = kinds[dtype]
    for inner in (1, 7):
        shape = (5, 6, inner)
        array = LAYOUTS[layout](np.zeros(shape, kind))
        tensor = torch.zeros(shape, dtype=torch_kind)
        tensor = {
            "transposed": lambda t: t.transpose(0, 1),
            "permuted": lambda t: t.transpose(0, 2).transpose(1, 2),
        }.get(layout, LAYOUTS[layout])(tensor)
        draw(pair.ours, **options, out=array)
        getattr(tensor, method)(*arguments, generator=pair.theirs)
        pair.same(array, tensor)


@pytest.fixture
def pytorch_draws_bernoulli_from_the_stream():
    g = torch.Generator().manual_seed(0)
    torch.empty(5).bernoulli_(0.5, generator=g)
    if int(g.get_state()[16]) != 10:
        pytest.skip("this PyTorch draws scalar bernoulli_ from MKL, as on Intel processors")


@pytest.mark.parametrize("dtype", NUMBERS | BOOL)
@pytest.mark.parametrize("p", [0.0, 0.3, 0.5, 1.0])
def test_bernoulli_with_one_probability(dtype, p, pytorch_draws_bernoulli_from_the_stream):
    pair = Pair(20)
    kind, torch_kind = (NUMBERS | BOOL)[dtype]
    theirs = torch.empty(40, 50, dtype=torch_kind).bernoulli_(p, generator=pair.theirs)
    pair.same(random.bernoulli(pair.ours, p, (40, 50), kind), theirs)


@fill_dtypes
@pytest.mark.parametrize("result", ["float32", "int64", "bool"])
def test_bernoulli_with_many_probabilities(dtype, result):
    pair = Pair(20)
    p = np.random.default_rng(0).uniform(0, 1, (13, 17)).astype(FLOATS[dtype][0])
    kind, torch_kind = (NUMBERS | BOOL)[result]
    array, tensor = np.zeros((17, 13), kind).T, torch.zeros(17, 13, dtype=torch_kind).t()
    pair.same(
        random.bernoulli(pair.ours, p, out=array), tensor.bernoulli_(to_torch(p), generator=pair.theirs)
    )
    pair.same(
        random.bernoulli(pair.ours, p, dtype=p.dtype), torch.bernoulli(to_torch(p), generator=pair.theirs)
    )


@sizes
@pytest.mark.parametrize(
    ("low", "high"),
    [
        (0, 1),
        (0, 10),
        (-5, 12),
        (0, 2**24),
        (3, 2**28 + 2),
        (0, 2**28),
        (0, 2**32),
        (-(2**40), 2**62),
        (-(2**63), 2**63 - 1),
    ],
)
def test_randint(size, low, high):
    pair = Pair(20)
    pair.same(
        random.randint(pair.ours, low, high, (size,)),
        torch.randint(low, high, (size,), generator=pair.theirs),
    )


@pytest.mark.parametrize("dtype", NUMBERS)
def test_randint_of_every_dtype(dtype):
    pair = Pair(20)
    kind, torch_kind = NUMBERS[dtype]
    pair.same(
        random.randint(pair.ours, 0, 100, (50,), kind),
        torch.randint(0, 100, (50,), dtype=torch_kind, generator=pair.theirs),
    )


@pytest.mark.filterwarnings("ignore:.*out of bounds")
@pytest.mark.parametrize(
    ("low", "high"), [(0, 65504), (-(2**24) - 3, 2**30), (2**53 + 1, 2**60 + 1), (0, 2**12 + 1)]
)
@fill_dtypes
def test_integer_bounds_are_moved_to_what_a_float_holds(dtype, low, high):
    pair = Pair(20)
    kind, torch_kind = FLOATS[dtype]
    tensor = torch.empty(60, dtype=torch_kind)
    try:
        tensor.random_(low, high, generator=pair.theirs)
    except RuntimeError as error:
        with pytest.raises(
            RuntimeError, match=str(error).split(" but ")[0].split(" for ")[0].split("\n")[0][:40]
        ):
            random.randint(pair.ours, low, high, (60,), kind)
    else:
        pair.same(random.randint(pair.ours, low, high, (60,), kind), tensor)


@pytest.mark.parametrize("dtype", ["int64", "float64", "float32", "bfloat16"])
def test_random_over_all_64_bits(dtype):
    pair = Pair(20)
    kind, torch_kind = NUMBERS[dtype]
    theirs = torch.empty(50, dtype=torch_kind).random_(-(2**63), None, generator=pair.theirs)
    pair.same(random.random_(pair.ours, (50,), kind, -(2**63), None), theirs)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 10, 999, 1000, 1001, 1002, 10007, 100_000])
def test_randperm(n):
    pair = Pair(20)
    pair.same(random.randperm(pair.ours, n), torch.randperm(n, generator=pair.theirs))


@pytest.mark.parametrize("dtype", NUMBERS)
def test_randperm_of_every_dtype(dtype):
    pair = Pair(20)
    kind, torch_kind = NUMBERS[dtype]
    pair.same(
        random.randperm(pair.ours, 100, kind), torch.randperm(100, dtype=torch_kind, generator=pair.theirs)
    )


@fill_dtypes
@pytest.mark.parametrize("rows", [None, 1, 4])
@pytest.mark.parametrize(("samples", "replacement"), [(1, False), (1, True), (6, True), (200, True)])
def test_multinomial(dtype, rows, samples, replacement):
    pair = Pair(20)
    shape = (30,) if rows is None else (rows, 30)
    weights = np.random.default_rng(0).uniform(0.01, 1, shape).astype(FLOATS[dtype][0])
    theirs = torch.multinomial(to_torch(weights), samples, replacement, generator=pair.theirs)
    pair.same(random.multinomial(pair.ours, weights, samples, replacement), theirs)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("samples", [2, 15, 30])
def test_multinomial_without_replacement(dtype, samples):
    pair = Pair(20)
    # Half types are left out: equal quotients are common there, and PyTorch's order of them is unspecified.
    weights = np.random.default_rng(0).uniform(0.01, 1, (4, 30)).astype(FLOATS[dtype][0])
    pair.same(
        random.multinomial(pair.ours, weights, samples),
        torch.multinomial(to_torch(weights), samples, generator=pair.theirs),
    )


@fill_dtypes
@pytest.mark.parametrize("size", [5, 16, 50])
def test_normal_of_tensors(dtype, size):
    pair = Pair(20)
    mean = np.random.default_rng(0).uniform(-1, 1, size).astype(FLOATS[dtype][0])
    std = np.abs(mean[::-1]).copy()
    pair.same(
        random.normal(pair.ours, mean=mean, std=std),
        torch.normal(to_torch(mean), to_torch(std), generator=pair.theirs),
    )
    pair.same(
        random.normal(pair.ours, mean=mean, std=0.7), torch.normal(to_torch(mean), 0.7, generator=pair.theirs)
    )
    pair.same(
        random.normal(pair.ours, mean=0.3, std=std), torch.normal(0.3, to_torch(std), generator=pair.theirs)
    )


def test_interleaved_calls_share_one_state():
    pair = Pair(20)
    ours, theirs = pair.ours, pair.theirs
    rng = np.random.default_rng(5)
    calls = [
        lambda n: (random.normal(ours, (n,)), torch.randn(n, generator=theirs)),
        lambda n: (
            random.normal(ours, (n,), np.float64),
            torch.randn(n, dtype=torch.float64, generator=theirs),
        ),
        lambda n: (random.uniform(ours, (n,)), torch.rand(n, generator=theirs)),
        lambda n: (random.randint(ours, 0, 7, (n,)), torch.randint(0, 7, (n,), generator=theirs)),
        lambda n: (random.randperm(ours, n), torch.randperm(n, generator=theirs)),
        lambda n: (random.log_normal(ours, (n,)), torch.empty(n).log_normal_(generator=theirs)),
        lambda n: (random.exponential(ours, (n,)), torch.empty(n).exponential_(generator=theirs)),
    ]
    for _ in range(400):
        pair.same(*calls[rng.integers(len(calls))](int(rng.choice([1, 2, 3, 5, 16, 20, 48, 700, 3000]))))
