"""nn.init: formulas, distributions, identity of the result, refusals; bit for bit against PyTorch."""

import math
import warnings

import numpy as np
import pytest

import tenon
from tenon.errors import TenonError
from tenon.nn import init
from tenon.nn.parameter import Parameter

IN_PLACE = {
    "uniform_": ((3, 5), ()),
    "normal_": ((3, 5), ()),
    "trunc_normal_": ((3, 5), ()),
    "constant_": ((3, 5), (0.3,)),
    "ones_": ((3, 5), ()),
    "zeros_": ((3, 5), ()),
    "eye_": ((3, 5), ()),
    "dirac_": ((3, 5, 3), ()),
    "xavier_uniform_": ((3, 5), ()),
    "xavier_normal_": ((3, 5), ()),
    "kaiming_uniform_": ((3, 5), ()),
    "kaiming_normal_": ((3, 5), ()),
    "orthogonal_": ((3, 5), ()),
    "sparse_": ((3, 5), (0.4,)),
}
RANDOM = [n for n in IN_PLACE if n not in ("constant_", "ones_", "zeros_", "eye_", "dirac_")]


@pytest.fixture(autouse=True)
def _seed():
    tenon.manual_seed(123)


def values(tensor):
    return tensor.detach().numpy().astype(np.float64).ravel()


def distance_from_normal(sample, mean, std):
    """Kolmogorov-Smirnov statistic, times the root of the sample's size."""
    ordered = np.sort(sample)
    cdf = np.array([(1 + math.erf((x - mean) / std / math.sqrt(2))) / 2 for x in ordered])
    return np.abs(cdf - (np.arange(ordered.size) + 0.5) / ordered.size).max() * math.sqrt(ordered.size)


def distance_from_uniform(sample, low, high):
    ordered = np.sort(sample)
    cdf = (ordered - low) / (high - low)
    assert cdf[0] >= 0 and cdf[-1] <= 1
    return np.abs(cdf - (np.arange(ordered.size) + 0.5) / ordered.size).max() * math.sqrt(ordered.size)


KS = 1.95  # exceeded with probability 0.001; the seed is fixed


@pytest.mark.parametrize("name", IN_PLACE)
def test_result_is_the_argument_and_stays_an_untaped_leaf(name):
    shape, arguments = IN_PLACE[name]
    parameter = Parameter(tenon.empty(*shape))

    result = getattr(init, name)(parameter, *arguments)

    assert result is parameter
    assert parameter.is_leaf and parameter.requires_grad and parameter.grad_fn is None


@pytest.mark.parametrize("name", IN_PLACE)
def test_meta_tensors_pass_through(name):
    shape, arguments = IN_PLACE[name]
    tensor = tenon.empty(*shape, device="meta")

    assert getattr(init, name)(tensor, *arguments) is tensor


@pytest.mark.parametrize("name", RANDOM)
def test_generator_decides_and_the_default_one_stays_where_it_was(name):
    shape, arguments = IN_PLACE[name]
    before = np.asarray(tenon.get_rng_state()).copy()

    first, second = (
        values(
            getattr(init, name)(tenon.empty(*shape), *arguments, generator=tenon.Generator().manual_seed(7))
        )
        for _ in range(2)
    )

    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(np.asarray(tenon.get_rng_state()), before)


@pytest.mark.parametrize(
    ("nonlinearity", "gain"),
    [
        ("linear", 1),
        ("conv1d", 1),
        ("conv_transpose3d", 1),
        ("sigmoid", 1),
        ("tanh", 5 / 3),
        ("relu", math.sqrt(2)),
        ("leaky_relu", math.sqrt(2 / (1 + 0.01**2))),
        ("selu", 0.75),
    ],
)
def test_gains(nonlinearity, gain):
    assert init.calculate_gain(nonlinearity) == gain


@pytest.mark.parametrize("slope", [0, 0.1, 2, 10.0])
def test_gain_of_leaky_relu_follows_the_slope(slope):
    assert init.calculate_gain("leaky_relu", slope) == math.sqrt(2 / (1 + slope**2))


@pytest.mark.parametrize("slope", [True, "0.1", [1]])
def test_slope_that_is_not_a_number_is_refused(slope):
    with pytest.raises(ValueError, match=r"negative_slope .* not a valid number"):
        init.calculate_gain("leaky_relu", slope)


def test_unknown_nonlinearity_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"Unsupported nonlinearity softplus.*relu"):
        init.calculate_gain("softplus")


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.0, 5.0)])
def test_uniform_has_its_distribution(low, high):
    assert distance_from_uniform(values(init.uniform_(tenon.empty(30, 40), low, high)), low, high) < KS


@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (-3.0, 5.0)])
def test_normal_has_its_distribution(mean, std):
    assert distance_from_normal(values(init.normal_(tenon.empty(30, 40), mean, std)), mean, std) < KS


@pytest.mark.parametrize(
    ("mean", "std", "a", "b"),
    [(0.0, 1.0, -2.0, 2.0), (1.0, 0.5, 0.5, 3.0), (0.0, 1.0, 1.5, 3.0), (5.0, 2.0, 4.9, 5.1)],
)
def test_trunc_normal_stays_inside_and_follows_the_normal_there(mean, std, a, b):
    sample = values(init.trunc_normal_(tenon.empty(60, 50), mean, std, a, b))

    assert a - 1e-6 <= sample.min() and sample.max() <= b + 1e-6
    cdf = [(1 + math.erf((x - mean) / std / math.sqrt(2))) / 2 for x in (a, b)]
    between = np.array([(1 + math.erf((x - mean) / std / math.sqrt(2))) / 2 for x in np.sort(sample)])
    assert distance_from_uniform(np.clip(between, *cdf), *cdf) < KS


def test_trunc_normal_far_from_its_mean_warns():
    with pytest.warns(UserWarning, match=r"mean is more than 2 std from \[a, b\]"):
        init.trunc_normal_(tenon.empty(4, 4), 0.0, 1.0, 3.0, 4.0)


def test_constants_fill():
    tensor = tenon.empty(2, 3)
    assert (values(init.constant_(tensor, -0.25)) == -0.25).all()
    assert (values(init.ones_(tensor)) == 1).all()
    assert (values(init.zeros_(tensor)) == 0).all()


@pytest.mark.parametrize("shape", [(3, 3), (2, 5), (5, 2), (0, 3)])
def test_eye_is_the_identity(shape):
    np.testing.assert_array_equal(init.eye_(tenon.ones(*shape)).numpy(), np.eye(*shape))


@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize("shape", [(6, 2, 3), (6, 4, 3, 5), (6, 1, 3, 4, 5), (6, 7, 1, 1)])
def test_dirac_has_ones_in_the_middle_of_the_window(shape, groups):
    expected = np.zeros(shape, np.float32)
    per_group = shape[0] // groups
    for group in range(groups):
        for channel in range(min(per_group, shape[1])):
            expected[(group * per_group + channel, channel, *(s // 2 for s in shape[2:]))] = 1

    np.testing.assert_array_equal(init.dirac_(tenon.ones(*shape), groups).numpy(), expected)


@pytest.mark.parametrize("gain", [1.0, 0.3])
@pytest.mark.parametrize("shape", [(40, 30), (10, 20, 6)])
def test_xavier_spread_follows_both_fans(shape, gain):
    field = math.prod(shape[2:])
    std = gain * math.sqrt(2.0 / ((shape[0] + shape[1]) * field))

    bound = std * math.sqrt(3)
    assert (
        distance_from_uniform(values(init.xavier_uniform_(tenon.empty(*shape), gain=gain)), -bound, bound)
        < KS
    )
    assert distance_from_normal(values(init.xavier_normal_(tenon.empty(*shape), gain=gain)), 0, std) < KS


@pytest.mark.parametrize("mode", ["fan_in", "fan_out", "FAN_IN"])
@pytest.mark.parametrize("slope", [0, 0.1, math.sqrt(5)])
@pytest.mark.parametrize("shape", [(40, 30), (10, 20, 6)])
def test_kaiming_spread_follows_one_fan(shape, slope, mode):
    field = math.prod(shape[2:])
    fan = (shape[1] if mode.lower() == "fan_in" else shape[0]) * field
    std = math.sqrt(2 / (1 + slope**2)) / math.sqrt(fan)

    bound = std * math.sqrt(3)
    assert (
        distance_from_uniform(values(init.kaiming_uniform_(tenon.empty(*shape), slope, mode)), -bound, bound)
        < KS
    )
    assert distance_from_normal(values(init.kaiming_normal_(tenon.empty(*shape), slope, mode)), 0, std) < KS


@pytest.mark.parametrize("function", [init.kaiming_uniform_, init.kaiming_normal_])
def test_kaiming_warns_that_empty_tensors_are_left_alone(function):
    tensor = tenon.empty(0, 1)
    with pytest.warns(UserWarning, match="Initializing zero-element tensors is a no-op"):
        assert function(tensor) is tensor


def test_unknown_fan_mode_is_refused():
    with pytest.raises(
        ValueError, match=r"Mode fan_both not supported, please use one of \['fan_in', 'fan_out'\]"
    ):
        init.kaiming_normal_(tenon.empty(2, 2), mode="fan_both")


@pytest.mark.parametrize(("shape", "fans"), [((3, 5), (5, 3)), ((4, 2, 3, 3), (18, 36)), ((4, 2, 0), (0, 0))])
def test_fans_count_the_receptive_field(shape, fans):
    assert init._calculate_fan_in_and_fan_out(tenon.empty(*shape)) == fans


@pytest.mark.parametrize("gain", [1.0, 0.4])
@pytest.mark.parametrize("shape", [(6, 6), (3, 8), (8, 3), (4, 2, 3), (20, 3, 3), (1, 5)])
def test_orthogonal_rows_or_columns_are_orthonormal_times_gain(shape, gain):
    matrix = init.orthogonal_(tenon.empty(*shape), gain=gain).numpy().reshape(shape[0], -1).astype(np.float64)

    gram = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix

    np.testing.assert_allclose(gram, gain**2 * np.eye(len(gram)), atol=1e-5)


def test_orthogonal_fills_a_transposed_tensor():
    tensor = tenon.empty(3, 7).t()
    matrix = init.orthogonal_(tensor).numpy()
    np.testing.assert_allclose(matrix.T @ matrix, np.eye(3), atol=1e-5)


def test_orthogonal_leaves_empty_tensors_alone():
    tensor = tenon.empty(0, 4)
    assert init.orthogonal_(tensor) is tensor


@pytest.mark.parametrize("sparsity", [0.0, 0.1, 0.5, 1.0])
def test_sparse_zeroes_its_share_of_every_column(sparsity):
    matrix = init.sparse_(tenon.empty(30, 20), sparsity, std=0.5).numpy()

    assert ((matrix == 0).sum(0) == math.ceil(sparsity * 30)).all()
    if sparsity < 1:
        assert distance_from_normal(matrix[matrix != 0], 0, 0.5) < KS


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("eye_", (3,), "Only tensors with 2 dimensions are supported"),
        ("sparse_", (3, 3, 3), "Only tensors with 2 dimensions are supported"),
        ("dirac_", (3, 3), "Only tensors with 3, 4, or 5 dimensions are supported"),
        ("dirac_", (1, 1, 1, 1, 1, 1), "Only tensors with 3, 4, or 5 dimensions are supported"),
        (
            "xavier_uniform_",
            (3,),
            "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions",
        ),
        ("xavier_normal_", (), "Fan in and fan out can not be computed"),
        ("kaiming_uniform_", (3,), "Fan in and fan out can not be computed"),
        ("kaiming_normal_", (), "Fan in and fan out can not be computed"),
        ("orthogonal_", (3,), "Only tensors with 2 or more dimensions are supported"),
    ],
)
def test_tensors_of_the_wrong_rank_are_refused_unchanged(name, shape, message):
    tensor = tenon.full(shape, 7.0)
    arguments = (0.5,) if name == "sparse_" else ()

    with pytest.raises(ValueError, match=message) as caught:
        getattr(init, name)(tensor, *arguments)

    assert isinstance(caught.value, TenonError)
    assert (values(tensor) == 7).all()


def test_dirac_needs_groups_that_divide_the_channels():
    with pytest.raises(ValueError, match="dim 0 must be divisible by groups"):
        init.dirac_(tenon.empty(5, 1, 3), 2)


@pytest.mark.parametrize("name", [n for n in IN_PLACE if n not in ("ones_", "zeros_", "trunc_normal_")])
def test_old_names_warn_and_do_the_same(name):
    shape, arguments = IN_PLACE[name]
    expected = getattr(init, name)(tenon.empty(*shape), *arguments)
    tenon.manual_seed(123)
    old = getattr(init, name[:-1])

    with pytest.warns(
        FutureWarning, match=rf"`nn.init.{name[:-1]}` is now deprecated in favor of `nn.init.{name}`"
    ):
        result = old(tenon.empty(*shape), *arguments)

    np.testing.assert_array_equal(result.numpy(), expected.numpy())
    assert old.__name__ == name[:-1]


CASES = [
    ("uniform_", (7, 9), {"a": -1.0, "b": 3.0}),
    ("normal_", (7, 9), {"mean": 2.0, "std": 0.1}),
    ("normal_", (3, 4), {}),
    ("trunc_normal_", (40, 50), {}),
    ("trunc_normal_", (40, 50), {"std": 0.02, "a": -0.04, "b": 0.04}),
    ("trunc_normal_", (5, 3), {"mean": 1.0, "a": 0.5, "b": 2.0}),
    ("constant_", (3, 4), {"val": 0.1}),
    ("ones_", (3, 4), {}),
    ("zeros_", (3, 4), {}),
    ("eye_", (3, 5), {}),
    ("dirac_", (6, 2, 3, 4), {"groups": 3}),
    ("xavier_uniform_", (7, 9), {"gain": 1.7}),
    ("xavier_normal_", (7, 9, 3), {"gain": 1.7}),
    ("kaiming_uniform_", (7, 9), {"a": math.sqrt(5)}),
    ("kaiming_uniform_", (7, 9, 3, 3), {"mode": "fan_out", "nonlinearity": "relu"}),
    ("kaiming_normal_", (7, 9), {"nonlinearity": "tanh"}),
    ("sparse_", (30, 20), {"sparsity": 0.3, "std": 0.2}),
]


@pytest.mark.draws
@pytest.mark.oracle
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize(("name", "shape", "options"), CASES, ids=lambda v: str(v))
def test_values_are_pytorchs_bit_for_bit(name, shape, options, dtype):
    torch = pytest.importorskip("torch", reason="parity with PyTorch needs the extra `oracle`")
    torch.manual_seed(123)

    theirs = getattr(torch.nn.init, name)(torch.empty(*shape, dtype=getattr(torch, dtype)), **options)
    ours = getattr(init, name)(tenon.empty(*shape, dtype=getattr(tenon, dtype)), **options)

    np.testing.assert_array_equal(ours.to(tenon.float64).numpy(), theirs.to(torch.float64).numpy())
    assert tenon.rand(1).item() == torch.rand(1).item()


@pytest.mark.oracle
@pytest.mark.parametrize("shape", [(6, 6), (3, 8), (8, 3), (20, 4, 3, 3)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_orthogonal_matrices_are_pytorchs(shape, dtype):
    torch = pytest.importorskip("torch", reason="parity with PyTorch needs the extra `oracle`")
    torch.manual_seed(123)

    theirs = torch.nn.init.orthogonal_(torch.empty(*shape, dtype=getattr(torch, dtype)), gain=1.5)
    ours = init.orthogonal_(tenon.empty(*shape, dtype=getattr(tenon, dtype)), gain=1.5)

    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), atol=1e-5 if dtype == "float32" else 1e-12)


@pytest.mark.draws
@pytest.mark.oracle
@pytest.mark.parametrize("bounds", [(1.5, 3.0), (4.9, 5.1), (-9.0, -2.0)])
def test_rejected_uniforms_of_trunc_normal_are_pytorchs(bounds):
    torch = pytest.importorskip("torch", reason="parity with PyTorch needs the extra `oracle`")
    torch.manual_seed(123)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = torch.nn.init.trunc_normal_(torch.empty(30, 40), 0.0, 1.0, *bounds)
        ours = init.trunc_normal_(tenon.empty(30, 40), 0.0, 1.0, *bounds)

    np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


@pytest.mark.oracle
def test_public_names_are_pytorchs():
    torch = pytest.importorskip("torch", reason="parity with PyTorch needs the extra `oracle`")
    assert sorted(init.__all__) == sorted(torch.nn.init.__all__)


def test_torchs_names_for_code_with_its_own_initial_values_draw_the_same():
    tenon.manual_seed(5)
    made = init._no_grad_uniform_(tenon.empty(3, requires_grad=True), 1.0, 2.0)
    tenon.manual_seed(5)

    assert tenon.equal(made, init.uniform_(tenon.empty(3), 1.0, 2.0)) and made.requires_grad
    assert init._no_grad_fill_(tenon.empty(2), 3.0).tolist() == [3.0, 3.0]
    assert init._no_grad_trunc_normal_(tenon.empty(50), 0.0, 1.0, -0.1, 0.1).abs().max() <= 0.1
