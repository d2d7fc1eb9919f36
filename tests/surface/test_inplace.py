"""In-place methods against torch: results, gradients, and errors."""

import numpy as np
import pytest

import tenon

pytestmark = [pytest.mark.oracle, pytest.mark.together]

CASES = [
    ("add_", "f:3,4", ("f:4",), {}),
    ("add_", "f:3,4", ("f:3,4",), {"alpha": 2}),
    ("add_", "f:4", ("f:3,4",), {}),
    ("add_", "i:4", ("f:4",), {}),
    ("add_", "f:4", ("i:4",), {}),
    ("sub_", "f:3,4", (1.5,), {}),
    ("mul_", "f:3,4", ("f:3,4",), {}),
    ("div_", "f:3,4", ("p:3,4",), {}),
    ("div_", "i:4", (2,), {}),
    ("pow_", "p:4", (2,), {}),
    ("pow_", "p:4", ("f:4",), {}),
    ("remainder_", "f:4", (0.7,), {}),
    ("fmod_", "f:4", (0.7,), {}),
    ("floor_divide_", "k:4<9", (2,), {}),
    ("clamp_", "f:9", (-0.5, 0.5), {}),
    ("clamp_", "f:9", (), {"min": 0}),
    ("clip_", "f:9", (0, None), {}),
    ("clamp_min_", "f:9", (0,), {}),
    ("clamp_max_", "f:9", (0,), {}),
    ("abs_", "f:4", (), {}),
    ("neg_", "f:4", (), {}),
    ("exp_", "f:4", (), {}),
    ("expm1_", "f:4", (), {}),
    ("log_", "p:4", (), {}),
    ("sqrt_", "p:4", (), {}),
    ("rsqrt_", "p:4", (), {}),
    ("square_", "f:4", (), {}),
    ("reciprocal_", "p:4", (), {}),
    ("sigmoid_", "f:4", (), {}),
    ("tanh_", "f:4", (), {}),
    ("sin_", "f:4", (), {}),
    ("cos_", "f:4", (), {}),
    ("relu_", "f:4", (), {}),
    ("erf_", "f:4", (), {}),
    ("erfinv_", "u:4", (), {}),
    ("floor_", "f:4", (), {}),
    ("ceil_", "f:4", (), {}),
    ("round_", "f:4", (), {}),
    ("round_", "f:4", (), {"decimals": 1}),
    ("trunc_", "f:4", (), {}),
    ("frac_", "f:4", (), {}),
    ("sign_", "f:4", (), {}),
    ("lerp_", "f:4", ("f:4", 0.3), {}),
    ("lerp_", "f:4", ("f:4", "q:4"), {}),
    ("addcmul_", "f:4", ("f:4", "f:4"), {"value": 2}),
    ("addcdiv_", "f:4", ("f:4", "p:4"), {"value": 0.5}),
    ("addmm_", "f:2,3", ("f:2,4", "f:4,3"), {"beta": 0.5}),
    ("addmv_", "f:2", ("f:2,4", "f:4"), {}),
    ("baddbmm_", "f:2,2,3", ("f:2,2,4", "f:2,4,3"), {"alpha": 2}),
    ("nan_to_num_", "z:30", (), {}),
    ("logit_", "q:4", (), {}),
    ("fill_", "f:4", (2.5,), {}),
    ("fill_", "f:4", ("f:",), {}),
    ("fill_", "f:4", ("f:2",), {}),
    ("zero_", "f:4", (), {}),
    ("copy_", "f:3,4", ("f:4",), {}),
    ("copy_", "f:3,4", ("i:3,4",), {}),
    ("copy_", "f:3", ("f:4",), {}),
    ("masked_fill_", "f:3,4", ("b:4", 2.0), {}),
    ("masked_scatter_", "f:3,4", ("b:3,4", "f:12"), {}),
    ("scatter_", "f:5,3", (0, "k:1,3<5", "f:1,3"), {}),
    ("scatter_", "f:5,3", (0, "i:1,3", 1.5), {}),
    ("scatter_add_", "f:5,3", (0, "i:4,3", "f:4,3"), {}),
    ("scatter_reduce_", "f:5", (0, "i:9", "f:9", "amax"), {}),
    ("index_add_", "f:5,2", (0, "i:4", "f:4,2"), {}),
    ("index_copy_", "f:5,2", (0, "k:1<5", "f:1,2"), {}),
    ("index_fill_", "f:5,2", (0, "i:2", 9.0), {}),
    ("index_put_", "f:5,2", (("i:4",), "f:4,2"), {"accumulate": True}),
    ("fill_diagonal_", "f:3,3", (1.5,), {}),
    ("squeeze_", "f:1,3", (), {}),
    ("unsqueeze_", "f:3", (0,), {}),
    ("transpose_", "f:2,3", (0, 1), {}),
    ("t_", "f:2,3", (), {}),
    ("eq_", "f:4", ("f:4",), {}),
    ("ne_", "f:4", (0,), {}),
    ("logical_not_", "b:4", (), {}),
    ("bitwise_and_", "i:4", (3,), {}),
    ("renorm_", "f:3,4", (2, 0, 0.5), {}),
    ("xlogy_", "p:4", ("p:4",), {}),
    ("copysign_", "f:4", ("f:4",), {}),
    ("hypot_", "p:4", ("p:4",), {}),
    ("atan2_", "f:4", ("p:4",), {}),
    ("cumsum_", "f:3,4", (1,), {}),
    ("tril_", "f:3,4", (), {}),
    ("triu_", "f:3,4", (1,), {}),
    ("float_power_", "p:4", (2,), {}),
    ("sgn_", "f:4", (), {}),
]


@pytest.mark.parametrize(("name", "target", "args", "kwargs"), CASES, ids=str)
def test_in_place_methods_write_what_torch_writes(compare_in_place, name, target, args, kwargs):
    compare_in_place(name, target, args, kwargs)


@pytest.mark.parametrize(("name", "target", "args", "kwargs"), CASES, ids=str)
def test_in_place_methods_have_torchs_gradient(compare_in_place, name, target, args, kwargs):
    no_slope = ("floor_divide_", "eq_", "ne_", "sgn_", "nan_to_num_", "logical_not_", "bitwise_and_")
    if name not in no_slope and target[0] not in "ikb":
        compare_in_place(name, target, args, kwargs, grad=True)


@pytest.mark.parametrize(
    "name", ["add_", "mul_", "exp_", "fill_", "zero_", "copy_", "relu_", "squeeze_", "clamp_"]
)
def test_a_leaf_that_requires_grad_is_not_written_to(name):
    torch = pytest.importorskip("torch")
    args = {"add_": (1,), "mul_": (2,), "fill_": (1,), "clamp_": (0, 1)}.get(name, ())

    for lib in (tenon, torch):
        leaf = lib.ones(1, 3, requires_grad=True)
        given = (lib.zeros(1, 3),) if name == "copy_" else args
        if name == "squeeze_":
            continue
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
            getattr(leaf, name)(*given)
        assert leaf.tolist() == [[1, 1, 1]]


def test_writing_through_a_view_reaches_its_base():
    x = tenon.zeros(3, 3)

    x.diagonal().fill_(1)
    x[0].add_(1)
    x.t()[2].mul_(5)

    np.testing.assert_array_equal(x.numpy(), [[2, 1, 5], [0, 1, 0], [0, 0, 5]])
