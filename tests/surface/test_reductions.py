"""Reductions, scans, order and statistics against torch: values, indices, gradients."""

import pytest

pytestmark = pytest.mark.oracle

OVER_AXES = [
    "sum",
    "mean",
    "std",
    "var",
    "amax",
    "amin",
    "logsumexp",
    "nansum",
    "nanmean",
    "norm",
    "all",
    "any",
    "count_nonzero",
]
AXES = [{"dim": 0}, {"dim": -1}, {"dim": (0, 2)}, {"dim": 1, "keepdim": True}, {}]


@pytest.mark.parametrize("options", AXES, ids=str)
@pytest.mark.parametrize("name", OVER_AXES)
def test_reductions_are_torchs(compare, name, options):
    if name == "logsumexp" and "dim" not in options:
        options = {"dim": (0, 1, 2)}
    if name == "count_nonzero":
        options = {k: v for k, v in options.items() if k != "keepdim"}
    if name in ("amax", "amin") and "dim" not in options:
        options = {"dim": ()}
    compare(name, ("f:2,3,4",), options)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "int32", "uint8", "bool"])
@pytest.mark.parametrize("name", ["sum", "prod", "mean", "cumsum", "max", "min", "all", "any", "argmax"])
def test_reductions_choose_torchs_dtype(compare, name, dtype):
    args = ("n:6", 0) if name == "cumsum" else ("n:6",)
    compare(name, args, dtype=dtype, grad=False, refusals=False)


@pytest.mark.parametrize(
    "name", ["sum", "mean", "prod", "all", "any", "argmax", "max", "cumsum", "logsumexp"]
)
def test_empty_and_0d_tensors_reduce_as_in_torch(compare, name):
    options = {"dim": 0} if name in ("cumsum", "logsumexp") else {}
    compare(name, ("f:",), options)
    compare(name, ("f:0",), options, grad=False)
    compare(name, ("f:2,0,3",), {"dim": 0}, grad=False)


@pytest.mark.parametrize("method", [False, True], ids=["function", "method"])
@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [
        ("sum", ("f:3,4",), {"dtype": "dtype:float32"}),
        ("sum", ("f:3,4",), {"axis": 1, "keepdims": True}),
        ("mean", ("i:3,4",), {"dtype": "dtype:float64"}),
        ("prod", ("f:3,4",), {}),
        ("prod", ("f:3,4", 1), {}),
        ("prod", ("i:3,4",), {}),
        ("max", ("f:3,4",), {}),
        ("max", ("f:3,4", 1), {}),
        ("max", ("f:3,4", 0, True), {}),
        ("max", ("f:3,4", "f:4"), {}),
        ("max", ("f:3,4",), {"axis": 1}),
        ("min", ("f:3,4",), {"dim": -2}),
        ("min", ("f:3,4", "f:3,4"), {}),
        ("aminmax", ("f:3,4",), {}),
        ("aminmax", ("f:3,4",), {"dim": 1}),
        ("argmax", ("f:3,4",), {}),
        ("argmax", ("f:3,4", 1), {"keepdim": True}),
        ("argmin", ("i:3,4",), {"dim": 0}),
        ("std", ("f:3,4",), {"correction": 0}),
        ("std", ("f:3,4", 1, False), {}),
        ("var", ("f:3,4",), {"unbiased": False}),
        ("var", ("f:3,4", [0, 1]), {"correction": 2}),
        ("var_mean", ("f:3,4",), {}),
        ("var_mean", ("f:3,4", 1), {"keepdim": True}),
        ("std_mean", ("f:3,4", (0, 1)), {"correction": 0}),
        ("std_mean", ("f:3,4", 0, False), {}),
        ("norm", ("f:3,4",), {}),
        ("norm", ("f:3,4", 1), {}),
        ("norm", ("f:3,4", float("inf"), 1), {}),
        ("norm", ("f:3,4",), {"p": 3, "dim": 0, "keepdim": True}),
        ("dist", ("f:3,4", "f:4"), {}),
        ("dist", ("f:3,4", "f:3,4", 1), {}),
        ("softmax", ("f:3,4", 1), {}),
        ("softmax", ("f:3,4",), {"dim": 0, "dtype": "dtype:float32"}),
        ("log_softmax", ("f:3,4", -1), {}),
        ("cumsum", ("f:3,4", 1), {}),
        ("cumsum", ("i:3,4", 0), {}),
        ("cumprod", ("p:3,4", 1), {}),
        ("cumprod", ("i:3,4", 0), {}),
        ("cummax", ("i:3,9", 1), {}),
        ("cummax", ("f:9,3", 0), {}),
        ("cummin", ("z:30", 0), {}),
        ("diff", ("f:3,5",), {}),
        ("diff", ("f:3,5",), {"n": 2, "dim": 0}),
        ("diff", ("f:5",), {"prepend": "f:2", "append": "f:1"}),
        ("diff", ("b:7",), {}),
        ("sort", ("f:3,4",), {}),
        ("sort", ("f:3,4", 0, True), {}),
        ("sort", ("z:30",), {"stable": True}),
        ("sort", ("i:30",), {"stable": True, "descending": True}),
        ("argsort", ("f:3,4",), {"dim": 0}),
        ("argsort", ("f:9",), {"descending": True}),
        ("msort", ("f:4,3",), {}),
        ("topk", ("f:3,9", 4), {}),
        ("topk", ("f:9,3", 2, 0, False), {}),
        ("topk", ("f:9", 20), {}),
        ("kthvalue", ("f:3,9", 4), {}),
        ("kthvalue", ("f:9,3", 2, 0, True), {}),
        ("median", ("f:3,4",), {}),
        ("median", ("f:3,5", 1), {}),
        ("median", ("f:3,4",), {"dim": 0, "keepdim": True}),
        ("nanmedian", ("f:3,5",), {}),
        ("quantile", ("f:3,5", 0.3), {}),
        ("quantile", ("f:3,5", 0.3), {"dim": 1}),
        ("quantile", ("f:3,5", 0.75), {"dim": 0, "keepdim": True}),
        ("quantile", ("f:3,5",), {"q": "q:3", "dim": 1}),
        ("quantile", ("f:7", 0.4), {"interpolation": "nearest"}),
        ("quantile", ("f:7", 0.4), {"interpolation": "lower"}),
        ("quantile", ("f:7", 0.4), {"interpolation": "higher"}),
        ("quantile", ("f:7", 0.4), {"interpolation": "midpoint"}),
        ("quantile", ("f:7", 1.5), {}),
        ("unique", ("i:20",), {}),
        ("unique", ("i:4,5",), {"return_inverse": True, "return_counts": True}),
        ("unique", ("i:9,1",), {"dim": 0, "return_counts": True}),
        ("unique_consecutive", ("i:20",), {"return_inverse": True, "return_counts": True}),
        ("unique_consecutive", ("i:9,1",), {"dim": 0}),
        ("bincount", ("i:20",), {}),
        ("bincount", ("i:20",), {"minlength": 9}),
        ("histc", ("f:30",), {"bins": 5, "min": -1, "max": 1}),
        ("histc", ("f:30", 7), {}),
        ("cov", ("f:3,6",), {}),
        ("cov", ("f:6",), {"correction": 0}),
        ("corrcoef", ("f:3,6",), {}),
        ("logsumexp", ("f:3,4", (0, 1)), {"keepdim": True}),
        ("trapezoid", ("f:3,4",), {}),
        ("trapezoid", ("f:3,4", "s:4"), {"dim": 1}),
        ("trapz", ("f:4",), {"dx": 0.5}),
        ("renorm", ("f:3,4", 2, 0, 0.5), {}),
        ("vander", ("f:4",), {"N": 3, "increasing": True}),
        ("vander", ("f:4",), {}),
        ("logcumsumexp", ("f:3,4", 1), {}),
        ("logcumsumexp", ("f:3,4",), {"dim": 0}),
        ("cumulative_trapezoid", ("f:3,4",), {"dx": 0.5}),
        ("gradient", ("f:5,4",), {}),
        ("gradient", ("f:5,4",), {"spacing": 0.5, "dim": 1}),
        ("gradient", ("f:5,4",), {"spacing": (0.5, 2.0), "edge_order": 2}),
        ("gradient", ("f:1",), {}),
    ],
    ids=str,
)
def test_options_act_as_in_torch(compare, name, args, kwargs, method):
    discrete = name in ("histc", "unique", "unique_consecutive", "nanmedian", "vander")
    compare(name, args, kwargs, method=method, grad=not discrete)


@pytest.mark.parametrize(
    "name",
    ["sum", "mean", "max", "min", "amax", "argmax", "median", "nansum", "cumsum", "cummax", "nanmedian"],
)
def test_nan_reduces_as_in_torch(compare, name):
    compare(name, ("z:40",), {"dim": 0}, grad=False)


def test_mode_is_the_most_frequent_value_and_the_smallest_of_several(compare):
    import tenon

    values = tenon.tensor([[3, 1, 3, 1, 2], [5, 4, 4, 0, 5]]).mode(1)

    assert values.values.tolist() == [1, 4]
    assert values.indices.tolist() == [3, 2]
