"""The gradients of methods that are several ops here have torch's names."""

import pytest

import tenon

pytestmark = pytest.mark.together

torch = pytest.importorskip("torch")

CALLS = {
    "max": [(), (1,)], "min": [(), (1,)], "median": [(), (1,)], "sort": [()], "topk": [(2,)], "std": [(), (1,)],
    "repeat": [(2, 1)], "kthvalue": [(1,)], "mode": [()], "cummax": [(0,)], "trace": [()], "frac": [()],
    "logit": [()], "nan_to_num": [()], "nansum": [()], "rot90": [()], "renorm": [(2, 0, 1.0)], "deg2rad": [()],
    "angle": [()], "mvlgamma": [(1,)], "prod": [(), (1,)], "aminmax": [()],
}  # fmt: skip


def name_of(made):
    first = made[0] if isinstance(made, tuple) else made
    return first.grad_fn.name()


@pytest.mark.oracle
@pytest.mark.parametrize(("name", "args"), [(n, a) for n, calls in CALLS.items() for a in calls], ids=str)
def test_the_last_node_of_a_method_has_torchs_name(name, args):
    ours, theirs = (library.full((3, 3), 0.5, requires_grad=True) for library in (tenon, torch))

    assert name_of(getattr(ours, name)(*args)) == name_of(getattr(theirs, name)(*args))


@pytest.mark.oracle
@pytest.mark.parametrize("write", [lambda x: x.zero_(), lambda x: x.fill_(2)])
def test_filling_in_place_has_torchs_name(write):
    ours, theirs = (write(library.ones(3, requires_grad=True) * 1) for library in (tenon, torch))

    assert name_of(ours) == name_of(theirs)


@pytest.mark.oracle
def test_methods_of_several_tensors_have_torchs_names():
    for library in (tenon, torch):
        x = library.full((3, 3), 0.5, requires_grad=True)
        made = [
            x.lerp(x, 0.5), x.lerp(x, x), x.addcmul(x, x), x.addcdiv(x, x), x.addmm(x, x),
            x.masked_fill(x > 1, 0.0), x.max(x),
        ]  # fmt: skip
        names = [name_of(m) for m in made]

        assert names == [
            "LerpBackward0", "LerpBackward1", "AddcmulBackward0", "AddcdivBackward0", "AddmmBackward0",
            "MaskedFillBackward0", "MaximumBackward0",
        ]  # fmt: skip


FUNCTIONS = {
    "nn.functional.group_norm": lambda t, x: t.nn.functional.group_norm(x[None], 3),
    "nn.functional.glu": lambda t, x: t.nn.functional.glu(x.repeat(1, 2)),
    "nn.functional.pixel_shuffle": lambda t, x: t.nn.functional.pixel_shuffle(x.expand(4, 3, 3), 2),
    "nn.functional.max_pool2d": lambda t, x: t.nn.functional.max_pool2d(x[None], 2),
    "nn.functional.conv_transpose2d": lambda t, x: t.nn.functional.conv_transpose2d(
        x[None, None], x[None, None], stride=2, output_padding=1
    ),
    "nn.functional.elu_": lambda t, x: t.nn.functional.elu_(x * 1),
    "nn.functional.grid_sample": lambda t, x: t.nn.functional.grid_sample(
        x[None, None], x[None, None, :, :2], align_corners=False
    ),
    "cdist": lambda t, x: t.cdist(x, x),
    "cdist by a product": lambda t, x: t.cdist(x, x, compute_mode="use_mm_for_euclid_dist"),
    "div with a rounding mode": lambda t, x: t.div(x, 2.0, rounding_mode="floor"),
    "fmod of tensors": lambda t, x: t.fmod(x, x + 1),
    "round to digits": lambda t, x: x.round(decimals=2),
    "quantile": lambda t, x: t.quantile(x, 0.3, dim=1),
    "kron": lambda t, x: t.kron(x, x[0]),
    "roll": lambda t, x: x.roll(1),
    "sum of all by name": lambda t, x: x.sum((0, 1)),
    "mean of all by name": lambda t, x: x.mean((0, 1)),
    "transpose": lambda t, x: x.transpose(0, 1),
    "t": lambda t, x: x.t(),
    "transpose_": lambda t, x: (x * 1).transpose_(0, 1),
    "split in sizes": lambda t, x: x.split([1, 2]),
    "scatter of a number": lambda t, x: x.scatter(0, t.tensor([[0]]), 2.0),
    "scatter_add": lambda t, x: x.scatter_add(0, t.tensor([[0]]), x),
    "index_fill of a tensor": lambda t, x: x.index_fill(0, t.tensor([0]), t.tensor(1.0)),
    "clamp_min": lambda t, x: x.clamp_min(0.1),
    "normal_": lambda t, x: (x * 1).normal_(),
    "diagonal_copy": lambda t, x: t.diagonal_copy(x),
    "linalg.lu": lambda t, x: t.linalg.lu(x + t.eye(3)).L,
    "linalg.solve": lambda t, x: t.linalg.solve(x + t.eye(3), x[0]),
    "linalg.lstsq": lambda t, x: t.linalg.lstsq(x + t.eye(3), x),
    "special.entr": lambda t, x: t.special.entr(x),
    "special.xlog1py": lambda t, x: t.special.xlog1py(2.0, x),
    "fft.rfft2": lambda t, x: t.fft.rfft2(x),
    "real": lambda t, x: t.fft.fft(x).real,
    "rsub": lambda t, x: t.rsub(x, x),
    "fill": lambda t, x: t.fill(x, x[0, 0]),
    "trapezoid": lambda t, x: t.trapezoid(x),
    "combinations": lambda t, x: t.combinations(x[0]),
    "atleast_2d": lambda t, x: t.atleast_2d(x[0]),
    "linalg.vander": lambda t, x: t.linalg.vander(x[0]),
    "linalg.solve_ex": lambda t, x: t.linalg.solve_ex(x + t.eye(3), x[0])[0],
    "ormqr": lambda t, x: t.ormqr(x, x[0], x),
    "stft": lambda t, x: t.stft(x.flatten(), 4, window=t.ones(4), return_complex=True),
    "conv_tbc": lambda t, x: t.conv_tbc(x[None], x[None], x[0], 1),
    "bmm": lambda t, x: t.bmm(x[None], x[None]),
    "matmul of stacks": lambda t, x: x[None] @ x[None],
    "adaptive_avg_pool3d": lambda t, x: t.nn.functional.adaptive_avg_pool3d(x[None, None], (None, None, 1)),
    "attention": lambda t, x: t.nn.functional.scaled_dot_product_attention(*[x[None, None]] * 3),
    "attention of three axes": lambda t, x: t.nn.functional.scaled_dot_product_attention(*[x[None]] * 3),
}


@pytest.mark.oracle
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_several_ops_have_torchs_names(name):
    ours, theirs = (
        name_of(FUNCTIONS[name](library, library.full((3, 3), 0.5, requires_grad=True)))
        for library in (tenon, torch)
    )

    assert ours == theirs.removeprefix("torch::autograd::")


def test_naming_a_result_leaves_the_nodes_before_it_alone():
    x = tenon.ones(2, 2, requires_grad=True) * 2

    x.rot90(0)
    x.max(1)

    assert x.grad_fn.name() == "MulBackward0"


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["var_mean", "std_mean"])
@pytest.mark.parametrize("dim", [None, 1])
def test_variance_and_mean_are_one_node_as_in_torch(name, dim):
    gradients = []
    for library in (tenon, torch):
        x = library.tensor([[1.0, 2.0, 4.0], [3.0, 3.0, 3.0]], requires_grad=True)
        first, mean = getattr(library, name)(x, dim)
        assert first.grad_fn is mean.grad_fn
        node = first.grad_fn
        shapes = [tuple(m.shape) for m in node._input_metadata]
        node.register_prehook(lambda grads: tuple(2 * g for g in grads))
        (first.square() + 3 * mean).sum().backward()
        alone = library.autograd.grad(getattr(library, name)(x, dim)[1].sum(), x)[0]
        gradients.append((node.name(), shapes, x.grad.tolist(), alone.tolist()))

    (mine, *found), (theirs, *expected) = gradients
    assert mine == theirs and found[0] == expected[0]
    for ours, other in zip(found[1:], expected[1:], strict=True):
        torch.testing.assert_close(torch.tensor(ours), torch.tensor(other))


@pytest.mark.parametrize("dim", [None, 1])
def test_numbers_that_are_all_equal_have_no_slope_of_their_deviation(dim):
    x = tenon.full((2, 3), 4.0, requires_grad=True)

    tenon.std(x, dim).sum().backward()
    tenon.std_mean(x, dim)[0].sum().backward()

    assert not x.grad.any()
